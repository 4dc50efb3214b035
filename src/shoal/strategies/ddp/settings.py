"""Settings of `ddp`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from shoal.config.choices import Checked
from shoal.config.feature import Row
from shoal.config.sections.values import Mebibytes


@dataclass(frozen=True)
class DdpConfig(Checked):
    """Replicas; gradients are summed in buckets, during backward where the group allows it."""

    REFUSES: ClassVar[Row] = {}

    name: Literal["ddp"] = "ddp"
    bucket_mib: Mebibytes = 25.0
    """Bucket size in MiB: smaller buckets overlap more, larger ones have less overhead."""
    first_bucket_mib: Mebibytes = 1.0
    """Size of the first bucket in MiB: small, so that the first exchange starts early."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""
    sync_batchnorm: bool = False
    """Compute batch-norm statistics over all workers; without it, batch norm gives other results than one machine."""
