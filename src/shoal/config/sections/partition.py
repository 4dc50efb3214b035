"""Settings of the partitions: which worker trains on which samples."""

from dataclasses import dataclass
from typing import Literal

from shoal.config.kinds import Checked
from shoal.config.sections.values import Count, Custom, PositiveFloat


@dataclass(frozen=True)
class GlobalConfig(Checked):
    """No fixed owner: each batch is split among the workers. Equals training on one machine."""

    name: Literal["global"] = "global"


@dataclass(frozen=True)
class SamplingConfig(Checked):
    """No fixed owner: each worker draws from all samples with replacement, so an epoch misses some."""

    name: Literal["sampling"] = "sampling"


@dataclass(frozen=True)
class RandomConfig(Checked):
    """Each worker owns a random part for the whole run."""

    name: Literal["random"] = "random"


@dataclass(frozen=True)
class ContiguousConfig(Checked):
    """Each worker owns a contiguous range of the data set."""

    name: Literal["contiguous"] = "contiguous"


@dataclass(frozen=True)
class HashConfig(Checked):
    """A hash of a sample's index selects its owner, which stays the same when the data set grows."""

    name: Literal["hash"] = "hash"


@dataclass(frozen=True)
class StratifiedConfig(Checked):
    """Each worker owns a random part with the labels in the same proportions."""

    name: Literal["stratified"] = "stratified"


@dataclass(frozen=True)
class LabelConfig(Checked):
    """Each worker owns some of the labels; no other worker has them unless labels_per_worker is set."""

    name: Literal["label"] = "label"
    labels_per_worker: Count | None = None
    """Labels per worker, which workers may share; none: each label has one owner."""


@dataclass(frozen=True)
class DirichletConfig(Checked):
    """The workers' shares of each label are drawn from a Dirichlet distribution."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: PositiveFloat = 0.5
    """Concentration α. Small: each worker has few labels; large: all have the same proportions."""


@dataclass(frozen=True)
class SpeedConfig(Checked):
    """Each worker owns a random part, in proportion to its speed."""

    name: Literal["speed"] = "speed"
    speeds: tuple[PositiveFloat, ...] = ()
    """The speed of each worker, in any unit."""


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
