"""How a bucket becomes the aggregate of all workers' buckets."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from shoal.config.kinds import AtLeast, Checked, by_name, in_short
from shoal.config.sections.values import Custom
from shoal.config.trust import like
from shoal.errors import ConfigError, unknown


@dataclass(frozen=True)
class AllReduceConfig(Checked):
    """The group's own all-reduce: the sum."""

    name: Literal["all_reduce"] = "all_reduce"


@dataclass(frozen=True)
class ByConfig(Checked):
    """The sum by one of our algorithms, made of send and recv alone; in short `by:ring`."""

    SHORT: ClassVar[str] = "algorithm"

    name: Literal["by"] = "by"
    algorithm: Literal[
        "central",
        "reduce_broadcast",
        "all_gather_sum",
        "reduce_scatter_all_gather",
        "ring",
        "tree",
        "halving_doubling",
    ] = "ring"
    """Which one; `shoal explain NAME` shows what it sends."""


@dataclass(frozen=True)
class RobustConfig(Checked):
    """A rule that bears bad workers: it sees every worker's bucket and gives one; in short `robust:median`."""

    SHORT: ClassVar[str] = "rule"

    name: Literal["robust"] = "robust"
    rule: Literal["median", "trimmed_mean", "krum"] = "median"
    """Coordinate median, trimmed mean, or Krum: the bucket whose neighbours are nearest."""
    bad: Annotated[int, AtLeast(0)] = 1
    """How many bad workers it must bear; refused if there are too few workers for that."""


@dataclass(frozen=True)
class StagesConfig(Checked):
    """Another exchange in each stage of training; in short `stages:0=all_reduce,0.5=by:ring`."""

    SHORT: ClassVar[str] = "plan"

    name: Literal["stages"] = "stages"
    plan: tuple[str, ...] = ("0=all_reduce",)
    """START=EXCHANGE each: from this part of the training on (0 the beginning, 1 the end), exchange like this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stages = self.stages()
        starts = [start for start, _ in stages]
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise ConfigError(
                "the stages of an exchange begin at 0 and rise, and here they are "
                + (", ".join(f"{start:g}" for start in starts) or "none"),
                "Write for example --exchange stages:0=all_reduce,0.5=by:ring",
            )

    def stages(self) -> "list[tuple[float, AllReduceConfig | ByConfig | RobustConfig | Custom]]":
        """The stages in order: where each begins, and its exchange."""
        return [_stage(text) for text in self.plan]


ExchangeConfig = AllReduceConfig | ByConfig | RobustConfig | StagesConfig | Custom


def _stage(text: str) -> tuple[float, AllReduceConfig | ByConfig | RobustConfig | Custom]:
    start, equals, exchange = (part.strip() for part in text.partition("="))
    try:
        fraction = float(start)
    except ValueError:
        fraction = -1.0
    if not equals or not 0 <= fraction < 1:
        raise ConfigError(
            f"'{text}' is not a stage of an exchange: write START=EXCHANGE, START from 0 to below 1"
        )
    named = by_name((AllReduceConfig, ByConfig, RobustConfig))
    name, options = in_short(named, exchange)
    if name in named:
        return fraction, named[name](**options)
    if ":" in exchange:
        return fraction, Custom(name=like(text, exchange))
    raise ConfigError(unknown("exchange", exchange, named), "In a stage: all_reduce, by:NAME, robust:NAME.")
