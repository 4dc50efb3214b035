"""What the checks of a run see of a `RunConfig`, which calls them and which they cannot import."""

from collections.abc import Mapping
from typing import Protocol

from shoal.config.sections.exchange import ExchangeConfig
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.layout import PipelineConfig, TensorConfig
from shoal.config.sections.memory import MemoryConfig
from shoal.config.sections.optimizer import OptimizerConfig
from shoal.config.sections.partition import PartitionConfig
from shoal.config.sections.prune import PruneConfig
from shoal.config.sections.sync import Capabilities
from shoal.config.sections.train import TrainConfig


class RunSettings(Protocol):
    """The settings of a run that are checked against each other."""

    @property
    def strategy(self) -> str:
        """Its name."""
        ...

    @property
    def can(self) -> Capabilities:
        """What it can be combined with."""
        ...

    @property
    def num_servers(self) -> int:
        """Parameter servers, in addition to the workers."""
        ...

    @property
    def precision(self) -> str:
        """`--precision`."""
        ...

    @property
    def engine(self) -> str:
        """`--engine`."""
        ...

    @property
    def device(self) -> str:
        """`--device`."""
        ...

    @property
    def sync(self) -> object:
        """The section `sync`."""
        ...

    @property
    def axes(self) -> Mapping[str, int]:
        """The sizes of the mesh's axes."""
        ...

    @property
    def pipeline(self) -> PipelineConfig:
        """The section `pipeline`."""
        ...

    @property
    def tensor(self) -> TensorConfig:
        """The section `tensor`."""
        ...

    @property
    def optimizer(self) -> OptimizerConfig:
        """The section `optimizer`."""
        ...

    @property
    def exchange(self) -> ExchangeConfig:
        """The section `exchange`."""
        ...

    @property
    def partition(self) -> PartitionConfig:
        """The section `partition`."""
        ...

    @property
    def prune(self) -> PruneConfig:
        """The section `prune`."""
        ...

    @property
    def memory(self) -> MemoryConfig:
        """The section `memory`."""
        ...

    @property
    def train(self) -> TrainConfig:
        """The section `train`."""
        ...

    @property
    def launch(self) -> LaunchConfig:
        """The section `launch`."""
        ...
