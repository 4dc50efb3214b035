"""The run that every technique changes: one worker trains a transformer, whose activations need most memory."""

from dataclasses import dataclass, field

from shoal.config.schema import RunConfig
from shoal.config.sections.data import DataConfig, SyntheticConfig
from shoal.config.sections.model import ModelConfig, TransformerConfig
from shoal.config.sections.optimizer import AdamConfig
from shoal.config.sections.train import TrainConfig


@dataclass(frozen=True)
class MemorySize:
    """How often every technique is tried; the model and the batch."""

    rounds: int
    batch: int = 16
    model: ModelConfig = field(default_factory=lambda: TransformerConfig(layers=4, width=128))
    most: int = 0
    """Rounds, if there are more because the times scatter too much to be told apart."""


FULL, QUICK = MemorySize(rounds=6, most=12), MemorySize(rounds=4, most=7)


@dataclass(frozen=True)
class MemoryPlan:
    """The experiment."""

    size: MemorySize
    seed: int = 0
    data: DataConfig = field(default_factory=lambda: SyntheticConfig(task="text"))

    def run(self) -> RunConfig:
        """The run as it is, without any technique."""
        return RunConfig(
            seed=self.seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.size.model,
            optimizer=AdamConfig(),
            train=TrainConfig(batch_size=self.size.batch),
        )


def plan_for(workers: int, quick: bool, first_seed: int) -> MemoryPlan:
    """The plan of a run; memory is measured on one worker."""
    del workers
    return MemoryPlan(QUICK if quick else FULL, first_seed)
