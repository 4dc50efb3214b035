"""How copies of a model agree: the sync of a strategy, and the table of the strategies that exist."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from shoal.config.kinds import Checked
from shoal.config.sections.values import Mebibytes
from shoal.errors import ConfigError


@dataclass(frozen=True)
class Capabilities:
    """What a sync can be combined with. `RunConfig` checks a run against it, so no sync is checked by its type."""

    most_workers: int | None = None
    """The largest number of workers; none: any."""
    divides_batch: bool = True
    """Whether each worker takes its share of a batch: partitions, uneven shares and balancing need that."""
    exchanges: bool = True
    """Whether it takes an `--exchange`."""
    engines: tuple[str, ...] = ("torch", "tape", "static")
    """The engines that can compute its gradients."""


@dataclass(frozen=True)
class NoSyncConfig(Checked):
    """One worker has all the data, so there is nothing to agree on."""

    CAN: ClassVar = Capabilities(most_workers=1, divides_batch=False, exchanges=False)

    name: Literal["none"] = "none"


@dataclass(frozen=True)
class NaiveConfig(Checked):
    """Copies that sum each parameter's gradient after backward: the first thing one would write."""

    CAN: ClassVar = Capabilities()

    name: Literal["naive"] = "naive"
    aggregate: Literal["gradients", "parameters"] = "gradients"
    """What the workers aggregate: gradients before the update, or parameters (and moments) after each has updated."""
    combine: Literal["exact", "sum", "mean", "weighted_mean"] = "exact"
    """exact: divide losses by the global count, sum gradients. The others start from each worker's own mean."""
    check_init: bool = False
    """Refuse workers whose initial parameters differ, instead of giving them rank 0's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregate == "parameters" and self.combine == "sum":
            raise ConfigError(
                "--combine sum of parameters multiplies them by the number of workers in every step",
                "Use --combine exact or mean, or --aggregate gradients.",
            )


@dataclass(frozen=True)
class DpConfig(Checked):
    """Rank 0 has data, loss and optimizer; the others run forward and backward on the pieces that it scatters."""

    # It cuts torch's graph in two at the outputs; our own engines have graphs of their own.
    CAN: ClassVar = Capabilities(divides_batch=False, exchanges=False, engines=("torch",))

    name: Literal["dp"] = "dp"


@dataclass(frozen=True)
class DdpConfig(Checked):
    """Copies that sum gradients in buckets, during backward where that pays."""

    CAN: ClassVar = Capabilities()

    name: Literal["ddp"] = "ddp"
    bucket_mib: Mebibytes = 25.0
    """Gradient bytes gathered before an exchange starts: smaller overlaps more, larger moves faster."""
    first_bucket_mib: Mebibytes = 1.0
    """Size of the first bucket: small, so that the exchange starts early."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter that no gradient reaches: name it and stop, or take zero for it."""
    sync_batchnorm: bool = False
    """Batch statistics over all workers' samples: without it a model with batch norm differs from one machine."""


SyncConfig = NoSyncConfig | NaiveConfig | DpConfig | DdpConfig

STRATEGIES: dict[str, tuple[str, str]] = {
    "single": ("whole", "none"),
    "naive": ("whole", "naive"),
    "ddp": ("whole", "ddp"),
    "dp": ("whole", "dp"),
}
"""The strategies that exist, each a pair (layout, sync). `--strategy NAME` abbreviates the pair."""
