"""Settings of `zero`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from shoal.config.choices import Checked
from shoal.config.feature import DIVIDED_WEIGHTS, Row
from shoal.config.kinds import AtLeast, AtMost, ImportPath
from shoal.config.sections.values import Mebibytes
from shoal.errors import ConfigError


@dataclass(frozen=True)
class ZeroConfig(Checked):
    """Optimizer state, gradients and parameters are divided among the workers (ZeRO, stages 1 to 3)."""

    REFUSES: ClassVar[Row] = DIVIDED_WEIGHTS

    name: Literal["zero"] = "zero"
    stage: Annotated[int, AtLeast(1), AtMost(3)] = 1
    """What is divided: 1: optimizer state; 2: gradients, too; 3: parameters, too."""
    unit_mib: Mebibytes = 8.0
    """Parameters that are gathered and reduced together, in MiB: small units save memory, large ones overhead."""
    unit_of: ImportPath | None = None
    """`package.module:function`, called with a parameter's name: those with the same result are one unit."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""
    sync_batchnorm: bool = False
    """Compute batch-norm statistics over all workers; without it, batch norm gives other results than one machine."""
    offload: Literal["none", "memory", "file"] = "none"
    """Where optimizer state is kept: with the parameters, in the host's memory (for a GPU), or in a mapped file."""
    offload_dir: str = ""
    """Folder of the file of --strategy.offload file; empty: $TMPDIR, or /var/tmp."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.offload_dir and self.offload != "file":
            raise ConfigError(
                f"--strategy.offload_dir has no effect with --strategy.offload {self.offload}",
                "Use --strategy.offload file, or leave offload_dir out.",
            )
