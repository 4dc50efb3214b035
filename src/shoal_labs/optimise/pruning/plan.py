"""The runs of the part by name.

::

    prune-whole-seed0          the network before pruning
    prune-weights-0-seed0      nothing is pruned, but the same fine-tuning follows: pruned networks are compared with it
    prune-weights-80-seed0     four fifths of its weights become zero, then an epoch of fine-tuning
    prune-channels-50-seed0    half of its channels are removed, then an epoch of fine-tuning
"""

from dataclasses import dataclass, field
from typing import Any

from shoal.config.schema import RunConfig
from shoal.config.sections.data import DataConfig, DigitsConfig
from shoal.config.sections.model import LenetConfig, ModelConfig
from shoal.config.sections.optimizer import AdamConfig
from shoal.config.sections.train import TrainConfig
from shoal_labs.plans import seeds_from
from shoal_labs.runs import ONLY_AT_THE_END

BATCH_SIZE = 64
KINDS: dict[str, tuple[float, ...]] = {"weights": (0.5, 0.8, 0.9, 0.95), "channels": (0.25, 0.5, 0.75)}
"""The sparsities of each kind of pruning: of the weights, or of each layer's channels."""
USUAL = {"weights": 0.8, "channels": 0.5}
"""The sparsities that the findings are about."""


@dataclass(frozen=True)
class PruningSize:
    """How much is trained."""

    epochs: int
    """Before pruning."""
    finetune: int
    seeds: int
    rounds: int
    """Of the forward passes that are timed."""


FULL = PruningSize(epochs=3, finetune=1, seeds=8, rounds=30)
QUICK, QUICK_SAMPLES = PruningSize(epochs=3, finetune=1, seeds=5, rounds=15), 4000


@dataclass(frozen=True)
class PruningPlan:
    """The experiment."""

    size: PruningSize
    data: DataConfig
    first_seed: int = 0
    model: ModelConfig = field(default_factory=LenetConfig)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every run."""
        return seeds_from(self.first_seed, self.size.seeds)

    def whole(self, seed: int) -> RunConfig:
        """The training before pruning."""
        return RunConfig(
            seed=seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=AdamConfig(),
            train=TrainConfig(epochs=self.size.epochs, batch_size=BATCH_SIZE),
            checkpoint=ONLY_AT_THE_END,
        )


def name_of(kind: str, sparsity: float, seed: int) -> str:
    """The name of a pruned run.

    >>> name_of("weights", 0.8, 0)
    'prune-weights-80-seed0'
    """
    return f"prune-{kind}-{100 * sparsity:.0f}-seed{seed}"


def settings_of(kind: str, sparsity: float) -> dict[str, Any]:
    """What `shoal prune` sets for this kind."""
    if kind == "channels":
        return {"name": "channels", "sparsity": sparsity, "scope": "layer"}
    return {"name": "magnitude", "sparsity": sparsity, "scope": "global", "begin": 0.0, "end": 0.0}


def plan_for(workers: int, quick: bool, first_seed: int) -> PruningPlan:
    """The plan of a run; pruning needs one worker only."""
    del workers
    data = DigitsConfig(samples=QUICK_SAMPLES if quick else None)
    return PruningPlan(QUICK if quick else FULL, data, first_seed)
