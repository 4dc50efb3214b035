"""What a strategy is to the training loop: one small protocol, and the values that pass through it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from shoal.data.dataset import Batch

Pieces = dict[str, Tensor]
"""State under `single`'s names: `model.fc1.weight`, `optim.fc1.weight.exp_avg`."""

Gradients = Callable[[Batch, float], Tensor]
"""`gradients(batch, scale)`: adds scale · ∂(sum of losses)/∂θ to every parameter's gradient, and gives that sum.

Made by the engine, torch's autograd or one of our own; a strategy knows nothing else about how it is done."""


@dataclass(frozen=True)
class Share:
    """What one worker does of one step: its part of the batch, and the number of samples that *all* workers have."""

    parts: Iterable[Batch]
    """Micro-batches, made one at a time: a batch as large as the data set needs no copy of the data set."""
    num_samples_global: int
    """Every loss is divided by this, and gradients are summed: uneven shares are then exact without any weights."""
    num_samples: int
    """Samples of this worker's parts together; what students divide by instead."""


class StepResult(NamedTuple):
    """What a step tells: the mean loss over the samples of this worker's share, divided by the global count."""

    loss: Tensor
    """Sum of losses over this worker's samples, divided by the global number of samples; still on its device."""


class Sums(NamedTuple):
    """An evaluation, as sums that add up over batches and workers."""

    loss: Tensor
    correct: Tensor
    predictions: int
    samples: int


class Strategy(Protocol):
    """How replicas, or pieces of a model, take a step together."""

    data_rank: int
    data_size: int

    def step(self, share: Share, lr: float) -> StepResult:
        """Gradients of the share, agreement with the others, update."""
        ...

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch, the model in evaluation mode."""
        ...

    def pieces(self) -> Pieces:
        """The state this worker owns."""
        ...

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Take a state that `pieces` gave, of this or another strategy."""
        ...
