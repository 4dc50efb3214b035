"""What a strategy is to the training loop: one small protocol, and the values that pass through it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from shoal.comm.group import Group
from shoal.data.dataset import Batch
from shoal.parallel.piece import Piece

Gradients = Callable[[Batch, float], Tensor]
"""`gradients(batch, scale)`: adds scale · ∂(sum of losses)/∂θ to every parameter's gradient, and returns that sum.

An engine makes it, torch's autograd or one of our own; a strategy knows nothing else about how it is done."""


@dataclass(frozen=True)
class Share:
    """What one worker does in one step: its part of the batch, and the number of samples that *all* workers have."""

    parts: Iterable[Batch]
    """Micro-batches, made one at a time: a batch as large as the data set needs no copy of the data set."""
    num_samples_global: int
    """Every loss is divided by this, and gradients are summed: uneven shares are then exact without any weights."""
    num_samples: int
    """Samples of this worker's parts together; what students divide by instead."""
    stop_signal: int = 0
    """The signal that asks this worker to stop, 0 for none. It travels with what the step exchanges anyway."""


class StepResult(NamedTuple):
    """What a step returns."""

    loss: Tensor
    """Mean loss over the samples of all workers, still on its device."""
    stop_signal: int = 0
    """The signal that asks any worker to stop, 0 for none: the same on all workers."""
    settle: Callable[[], int] | None = None
    """On a GPU the host does not wait for a step. This waits for it, raises if a number was not finite, and returns
    the stop signal."""


class Sums(NamedTuple):
    """An evaluation, as sums that add up over batches and workers."""

    loss: Tensor
    correct: Tensor
    predictions: int
    samples: int


class Pause(NamedTuple):
    """Why the workers that train have paused: to save, together with the workers that serve them."""

    progress: Mapping[str, Any]
    """How far they are, as the fields of `train.progress.Progress`."""
    is_end: bool
    """Whether they have finished, or were stopped."""


class Strategy(ABC):
    """How the workers of a run take a step together: a layout of the model, and a sync of its copies."""

    data_rank: int
    """Which share of a batch this worker gets …"""
    data_size: int
    """… of how many."""
    copies: Group
    """One worker of every copy of the model, this one among them: they divide evaluation among them."""
    serves: bool = False
    """Whether this worker answers others (`serve`) instead of training (`step`): a parameter server, an RPC stage."""

    @abstractmethod
    def step(self, share: Share, lr: float) -> StepResult:
        """Compute the gradients of the share, agree with the other workers, update."""

    @abstractmethod
    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch in evaluation mode; all workers of a copy call it together, with the same result."""

    @abstractmethod
    def pieces(self) -> list[Piece]:
        """The state that this worker holds."""

    @abstractmethod
    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load a state that was saved under this or another strategy: the whole tensors by name.

        `saved` may read a tensor only when it is asked for, so that one at a time is in memory.
        """

    def serve(self) -> Pause:
        """Answer the workers that train until they pause. Only for a worker that `serves`."""
        raise NotImplementedError(f"{type(self).__name__} does not serve")

    def pause(self, pause: Pause) -> None:  # noqa: B027 (most strategies have no worker that serves)
        """Before saving: tell the workers that serve to save too."""
