"""How a batch becomes an update on several workers."""

from dataclasses import dataclass
from typing import Literal

from shoal.config.kinds import Checked
from shoal.config.sections.values import PositiveFloat
from shoal.errors import ConfigError


@dataclass(frozen=True)
class SingleConfig(Checked):
    """One worker, the whole model, the whole batch: what every other strategy must equal."""

    name: Literal["single"] = "single"


@dataclass(frozen=True)
class NaiveConfig(Checked):
    """Replicas that sum each parameter's gradient when backward is over: the first thing one would write."""

    name: Literal["naive"] = "naive"
    aggregate: Literal["gradients", "parameters"] = "gradients"
    """What the workers agree on: gradients before the update, or parameters (and moments) after each has updated."""
    combine: Literal["exact", "sum", "mean", "weighted_mean"] = "exact"
    """exact: losses are divided by the global count, gradients summed. The others start from each worker's own mean."""
    check_init: bool = False
    """Refuse workers whose initial parameters differ, instead of giving them rank 0's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregate == "parameters" and self.combine == "sum":
            raise ConfigError(
                "--combine sum of parameters would make them larger by the number of workers in every step",
                "Use --combine exact or mean, or --aggregate gradients.",
            )


@dataclass(frozen=True)
class DpConfig(Checked):
    """Rank 0 has data, loss and optimizer; the others run forward and backward on the pieces that it scatters."""

    name: Literal["dp"] = "dp"


@dataclass(frozen=True)
class DdpConfig(Checked):
    """Replicas that sum gradients in buckets, while backward is still at work where that pays."""

    name: Literal["ddp"] = "ddp"
    bucket_mib: PositiveFloat = 25.0
    """Gradient bytes gathered before an exchange starts: smaller overlaps more, larger moves faster."""
    first_bucket_mib: PositiveFloat = 1.0
    """Size of the first bucket: small, so that the exchange starts early."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter that no gradient reaches: name it and stop, or take zero for it."""
    sync_batchnorm: bool = False
    """Batch statistics over all workers' samples: without it a model with batch norm differs from one machine."""


StrategyConfig = SingleConfig | NaiveConfig | DpConfig | DdpConfig
