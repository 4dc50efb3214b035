"""Who owns which samples."""

from dataclasses import dataclass
from typing import Literal

from shoal.config.kinds import Checked
from shoal.config.sections.values import Count, Custom, PositiveFloat


@dataclass(frozen=True)
class GlobalConfig(Checked):
    """Nobody owns any: every step takes the next batch of one common order and divides it. Equals one machine."""

    name: Literal["global"] = "global"


@dataclass(frozen=True)
class SamplingConfig(Checked):
    """Nobody owns any: every worker draws from the whole set, with replacement. Some samples are never seen."""

    name: Literal["sampling"] = "sampling"


@dataclass(frozen=True)
class RandomConfig(Checked):
    """Each worker owns a random part, for the whole run."""

    name: Literal["random"] = "random"


@dataclass(frozen=True)
class ContiguousConfig(Checked):
    """Each worker owns one stretch of the data set, in its stored order."""

    name: Literal["contiguous"] = "contiguous"


@dataclass(frozen=True)
class HashConfig(Checked):
    """A hash of its number decides who owns a sample: nobody moves when the data set grows."""

    name: Literal["hash"] = "hash"


@dataclass(frozen=True)
class StratifiedConfig(Checked):
    """Each worker owns a random part with the same proportion of every label."""

    name: Literal["stratified"] = "stratified"


@dataclass(frozen=True)
class LabelConfig(Checked):
    """Each worker owns some of the labels, and nobody else has them unless that is asked for."""

    name: Literal["label"] = "label"
    labels_per_worker: Count | None = None
    """So many labels for each worker, shared with others; none: every label has one owner."""


@dataclass(frozen=True)
class DirichletConfig(Checked):
    """Each worker's share of every label is drawn from a Dirichlet distribution: more or less uneven."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: PositiveFloat = 0.5
    """Small: each worker has few labels; large: all have the same."""


@dataclass(frozen=True)
class SpeedConfig(Checked):
    """Random parts, as large as the workers are fast."""

    name: Literal["speed"] = "speed"
    speeds: tuple[PositiveFloat, ...] = ()
    """One number per worker, in any unit."""


PartitionConfig = (
    GlobalConfig
    | SamplingConfig
    | RandomConfig
    | ContiguousConfig
    | HashConfig
    | StratifiedConfig
    | LabelConfig
    | DirichletConfig
    | SpeedConfig
    | Custom
)
