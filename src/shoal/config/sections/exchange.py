"""Settings of the exchanges: how workers aggregate a bucket of gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from shoal.config.choices import Checked, by_name, in_short
from shoal.config.custom import like
from shoal.config.kinds import AtLeast
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.values import AmongOrOwn, Custom
from shoal.errors import ConfigError, unknown


@dataclass(frozen=True)
class AllReduceConfig(Checked):
    """The group's own all-reduce: the sum."""

    name: Literal["all_reduce"] = "all_reduce"


@dataclass(frozen=True)
class ByConfig(Checked):
    """The sum by one of our algorithms, built from send and recv; `by:ring` for short."""

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
    """The algorithm; `shoal explain NAME` shows its messages."""


RULES = ("median", "trimmed_mean", "krum")


@dataclass(frozen=True)
class RobustConfig(Checked):
    """A robust rule: aggregates the workers' buckets and tolerates bad workers; `robust:median` for short."""

    SHORT: ClassVar[str] = "rule"

    name: Literal["robust"] = "robust"
    rule: Annotated[str, AmongOrOwn(RULES)] = "median"
    """Coordinate median, trimmed mean, or Krum: the bucket whose neighbours are nearest. Or package.module:function."""
    bad: Annotated[int, AtLeast(0)] = 1
    """Number of bad workers to tolerate; an error if there are too few workers for that."""


@dataclass(frozen=True)
class StagesConfig(Checked):
    """A different exchange in each stage of training; `stages:0=all_reduce,0.5=by:ring` for short."""

    SHORT: ClassVar[str] = "plan"

    name: Literal["stages"] = "stages"
    plan: tuple[str, ...] = ("0=all_reduce",)
    """A list of START=EXCHANGE: use that exchange from START on, a fraction of the training (0 to 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stages = self.stages()
        starts = [start for start, _ in stages]
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise ConfigError(
                "the stages of an exchange must start at 0 and increase, got "
                + (", ".join(f"{start:g}" for start in starts) or "none"),
                "Write for example --exchange stages:0=all_reduce,0.5=by:ring",
            )

    def stages(self) -> "list[tuple[float, StageConfig]]":
        """The stages in order: the fraction at which each begins, and its exchange."""
        return [_stage(text) for text in self.plan]


StageConfig = AllReduceConfig | ByConfig | RobustConfig | CompressedConfig | Custom
ExchangeConfig = AllReduceConfig | ByConfig | RobustConfig | CompressedConfig | StagesConfig | Custom


def stages_of(config: ExchangeConfig) -> list[StageConfig]:
    """The exchanges of a run: the exchange itself, or stages of it."""
    return [stage for _, stage in config.stages()] if isinstance(config, StagesConfig) else [config]


def compressions(config: ExchangeConfig) -> list[CompressedConfig]:
    """The compressed exchanges of a run."""
    return [stage for stage in stages_of(config) if isinstance(stage, CompressedConfig)]


def check_real(config: ExchangeConfig, complex_params: Sequence[str]) -> None:
    """Refuse complex parameters where an exchange orders or rounds numbers."""
    for stage in stages_of(config):
        if complex_params and isinstance(stage, RobustConfig | CompressedConfig):
            raise ConfigError(
                f"--exchange {stage.name} aggregates real numbers, but parameter '{complex_params[0]}' is complex",
                "Use --exchange all_reduce, or parameters for the real and the imaginary part.",
            )


@lru_cache(maxsize=256, typed=True)  # a name in a file is a FileText: it needs consent
def _stage(text: str) -> tuple[float, StageConfig]:
    start, equals, exchange = (part.strip() for part in text.partition("="))
    try:
        fraction = float(start)
    except ValueError:
        fraction = -1.0
    if not equals or not 0 <= fraction < 1:
        raise ConfigError(f"expected a stage START=EXCHANGE with 0 ≤ START < 1, got '{text}'")
    named = by_name((AllReduceConfig, ByConfig, RobustConfig, CompressedConfig))
    name, short = in_short(named, exchange)
    options = like(text, short)  # a codec of the user's own that a file names needs consent, too
    if options.get("codec") == "auto":
        raise ConfigError(
            f"compressed:auto cannot be a stage, got '{text}': it chooses once, in the first steps of the run",
            "Use --exchange compressed:auto, or name a codec in the stage.",
        )
    if name in named:
        try:
            return fraction, named[name](**options)
        except ConfigError as error:
            message = error.message.replace(f"{named[name].__name__}.", "")
            raise ConfigError(f"stage '{text}': {message}", error.hint) from None
    if ":" in exchange:
        return fraction, Custom(name=like(text, exchange))
    raise ConfigError(
        unknown("exchange", exchange, named), "In a stage: all_reduce, by:NAME, robust:NAME, compressed:NAME."
    )
