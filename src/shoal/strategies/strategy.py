"""The interface between strategies and the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.data.dataset import Batch
from shoal.events.spans import SpanRecorder, silent
from shoal.models.metrics import Measure
from shoal.strategies.pieces.piece import Piece

Stage = TypeVar("Stage")

Gradients = Callable[[Batch, float], Tensor]
"""`gradients(batch, scale)`: adds scale · ∂(sum of losses)/∂θ to every parameter's gradient, and returns that sum.

A gradient engine provides it: torch's autograd or one of shoal's. Strategies use nothing else of an engine."""


@dataclass
class TrainingClock:
    """The step in progress, for stages of an exchange and faults that begin at a step. The loop sets it."""

    step: int = 0
    total_steps: int = 1
    span: SpanRecorder = field(default_factory=silent)
    """Measures what an exchange does inside a step, such as encoding."""

    @property
    def fraction(self) -> float:
        """The fraction of the training that is done: 0 at the beginning, below 1 in the last step."""
        return self.step / self.total_steps

    def current(self, stages: Sequence[tuple[float, Stage]]) -> Stage:
        """The stage in progress, of stages that each begin at a fraction of the training, in order from 0 on."""
        return [stage for start, stage in stages if start <= self.fraction][-1]


@dataclass(frozen=True)
class Share:
    """One worker's part of a batch, and the number of samples of *all* workers."""

    parts: Iterable[Batch]
    """Micro-batches, produced one at a time: a batch of the whole data set needs no copy of it."""
    num_samples_global: int
    """Losses are divided by this and gradients summed, so uneven shares are exact without weights."""
    num_samples: int
    """Samples of this worker, all parts together. (A common error is to divide by this.)"""
    stop_signal: int = 0
    """The signal that this worker has received, 0 for none. It piggybacks on an exchange of the step."""
    before_part: Callable[[int], None] = lambda part: None
    """Called with the number of each part before it is computed, where parts are leaves (`leaf_sums.py`): random
    numbers then belong to a part."""
    empty: Callable[[], Batch] | None = None
    """A batch without samples, for workers whose share has fewer parts than others', where all make the same passes."""


class StepResult(NamedTuple):
    """What a step returns."""

    loss: Tensor
    """Mean loss over the samples of all workers, still on its device."""
    stop_signal: int = 0
    """A signal that any worker has received, 0 for none; the same on all workers."""
    settle: Callable[[], int] | None = None
    """Set where the host does not wait for a step (on a GPU): waits for it, raises an error if a number was not finite,
    and returns the stop signal."""


class Sums(NamedTuple):
    """The sums of an evaluation; they can be added over batches and workers."""

    loss: Tensor
    correct: Tensor
    predictions: int
    samples: int
    metrics: Tensor | None = None
    """The sums of all metrics of `--metrics`, one after the other, in float64."""
    divisor: Tensor | float | None = None
    """What the loss is divided by, if it counts; None: the number of samples."""

    def packed(self) -> Tensor:
        """Loss, correct predictions, count and metrics as one vector in float64, which can be summed and sent."""
        divisor = self.samples if self.divisor is None else self.divisor
        if not isinstance(divisor, Tensor):
            divisor = self.loss.new_tensor(divisor, dtype=torch.float64)
        first = torch.stack([self.loss.double(), self.correct.double(), divisor.double()])
        return first if self.metrics is None else torch.cat([first, self.metrics])


def width_of(measures: Sequence[Measure]) -> int:
    """The number of elements of `Sums.packed`."""
    return 3 + sum(each.width for each in measures)


class Pause(NamedTuple):
    """A pause of the workers that train: to save, together with the workers that serve them."""

    progress: Mapping[str, Any]
    """The fields of `train.progress.Progress`."""
    is_end: bool
    """Whether they have finished, or were stopped."""
    stop_signal: int = 0
    """The signal for which they stop; 0: none."""


class Serving(NamedTuple):
    """What a worker that serves gets from the training loop."""

    stop_signal: Callable[[], int] = lambda: 0
    """The signal that this worker has received, 0 for none; it travels to the workers that train with an answer."""
    stepped: Callable[[StepResult, int, float], None] = lambda result, num_samples, lr: None
    """Called after every step, with the number of samples of all workers and the learning rate: logs the step here."""
    record: Callable[[dict[str, Any]], None] = lambda record: None
    """Writes a record to the events of the run."""


class Turn(NamedTuple):
    """A share of a step that a worker computes next, where workers take what is free."""

    step: int
    share: int


class EndOfTurns(NamedTuple):
    """Why there is no turn left."""

    step: int
    """The step before which all turns end: the same on all workers."""
    stop_signal: int
    """The signal for which they end early, 0 for none."""


class Strategy(ABC):
    """How the workers of a run make a step together: a layout of the model, and a sync of its replicas."""

    data_rank: int
    """The number of this worker's share of a batch."""
    data_size: int
    """The number of shares of a batch."""
    copies: Group
    """One worker of every replica, including this one: they divide evaluation."""
    serves: bool = False
    """Whether this worker serves others (`serve`) instead of training (`step`), like a parameter server."""
    takes_turns: bool = False
    """Whether workers do not wait for each other, and each takes the next share that is free (`next_turn`)."""

    @abstractmethod
    def step(self, share: Share, lr: float) -> StepResult:
        """Compute the gradients of the share, aggregate them over the workers, update."""

    @abstractmethod
    def evaluate(self, batch: Batch) -> Sums:
        """Loss, correct predictions and metrics on a batch.

        The workers of a replica call it together, with the same result.
        """

    @abstractmethod
    def pieces(self) -> list[Piece]:
        """The state that this worker holds."""

    @abstractmethod
    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load a state that was saved under this or another strategy: the whole tensors by name.

        `saved` may read each tensor on access, so that one at a time is in memory.
        """

    def serve(self, serving: Serving) -> Pause:
        """Serve the workers that train until they pause. Only for a worker that `serves`."""
        del serving
        raise NotImplementedError(f"{type(self).__name__} does not serve")

    def next_turn(self, first: int, end: int) -> Turn | EndOfTurns:
        """The next share of steps `first` to `end` − 1 that no worker has taken. Only where workers take turns."""
        del first, end
        raise NotImplementedError(f"{type(self).__name__} does not take turns")

    def summary(self) -> dict[str, Any]:
        """What the result of a run says about this strategy beyond what it says about every run."""
        return {}

    def consolidate(self) -> None:  # noqa: B027 (most strategies keep their replicas equal)
        """Called by all workers together before they evaluate, save or export: make replicas that differ one model.

        `evaluate` and `pieces` are then those of that model, until the next step, which goes on as if nothing had been.
        """

    def agree_on_loss(self, loss_sum: float) -> float:
        """Called by all workers together at the end of an epoch and before they save: a sum of losses of all workers.

        `loss_sum` is made of the losses that `step` has returned here; in most strategies all workers have the same.
        """
        return loss_sum

    def pause(self, pause: Pause) -> None:  # noqa: B027 (most strategies have no worker that serves)
        """Called before saving: make the workers that serve save, too."""

    def close(self) -> None:  # noqa: B027 (most strategies use nothing but the group)
        """Called when all workers have finished: close connections that the strategy has beside the group."""


def part_of(samples: Sequence[int], workers: int) -> float:
    """A worker's part of all samples: (its own, those of all workers); before the first step, an equal part.

    >>> part_of((3, 12), workers=2), part_of((0, 0), workers=2)
    (0.25, 0.5)
    """
    mine, of_all = samples
    return mine / of_all if of_all else 1 / workers


def agreed_loss(group: Group, loss_sum: float, part: float) -> float:
    """The sum of the workers' losses, each times its part; all workers call it. Equal losses stay as they are."""
    total = torch.tensor([loss_sum * part], dtype=torch.float64)
    group.all_reduce(total).wait()
    return total.item()
