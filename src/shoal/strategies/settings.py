"""Settings of the strategies that are one file: `single`, `naive`, `dp`. No torch: `--help` shows them at once."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from shoal.config.choices import Checked
from shoal.config.feature import OWN_ENGINES, SHARES, Row
from shoal.errors import ConfigError, unknown


@dataclass(frozen=True)
class NoSyncConfig(Checked):
    """One worker: nothing to synchronise."""

    REFUSES: ClassVar[Row] = {
        "--workers": "it trains on one worker",
        "--exchange": "one worker exchanges nothing",
        **SHARES,
    }

    name: Literal["none"] = "none"


Combine = Literal["exact", "sum", "mean", "weighted_mean"]
COMBINES: tuple[Combine, ...] = get_args(Combine)


def _combine_stage(text: str) -> tuple[float, Combine]:
    start, _, combine = (part.strip() for part in text.partition("="))
    try:
        fraction = float(start)
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction < 1:
        raise ConfigError(f"expected a stage START=COMBINE with 0 ≤ START < 1, got '{text}'")
    for known in COMBINES:
        if combine == known:
            return fraction, known
    raise ConfigError(unknown("combine", combine, COMBINES))


@dataclass(frozen=True)
class NaiveConfig(Checked):
    """Replicas; one all-reduce per parameter after backward. Simple and slow."""

    REFUSES: ClassVar[Row] = {}

    name: Literal["naive"] = "naive"
    aggregate: Literal["gradients", "parameters"] = "gradients"
    """Aggregate gradients before the update, or parameters (and moments) after it."""
    combine: Combine = "exact"
    """exact: divide losses by the global batch size and sum. The others combine each worker's mean gradient."""
    combine_stages: tuple[str, ...] = ()
    """A list of START=COMBINE: combine in that way from START on, a fraction of the training; 0=sum,0.5=mean."""
    check_init: bool = False
    """Fail if initial parameters differ between workers, instead of copying rank 0's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        starts, combines = zip(*self.stages(), strict=True)
        if starts[0] != 0 or sorted(set(starts)) != [*starts]:
            raise ConfigError(
                "the stages of --combine-stages must start at 0 and increase, got "
                + ", ".join(f"{start:g}" for start in starts),
                "Write for example --combine-stages 0=sum,0.5=mean",
            )
        if self.combine_stages and self.combine != "exact":
            raise ConfigError(
                f"--combine {self.combine} has no effect with --combine-stages", "Remove one of the two."
            )
        if self.aggregate == "parameters" and "sum" in combines:
            raise ConfigError(
                "--aggregate parameters --combine sum multiplies the parameters by the number of workers in each step",
                "Use --combine exact or mean, or --aggregate gradients.",
            )

    def stages(self) -> list[tuple[float, Combine]]:
        """The stages in order: the fraction of the training at which each begins, and its combine."""
        return [_combine_stage(text) for text in self.combine_stages] or [(0.0, self.combine)]


@dataclass(frozen=True)
class DpConfig(Checked):
    """Rank 0 holds data, loss and optimizer, and scatters each batch; the others run forward and backward."""

    # It cuts torch's graph in two at the outputs; our own engines have graphs of their own.
    REFUSES: ClassVar[Row] = {"--exchange": "rank 0 collects the gradients", **SHARES, **OWN_ENGINES}

    name: Literal["dp"] = "dp"
