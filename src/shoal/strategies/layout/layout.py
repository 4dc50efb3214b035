"""The interface of a layout: how one replica of the model is divided among workers and computed there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.data.dataset import Batch
from shoal.events.spans import SpanRecorder
from shoal.models.losses import CountedLoss
from shoal.models.metrics import Measure
from shoal.strategies.gradient_engine import OnFinal
from shoal.strategies.norms import in_order
from shoal.strategies.pieces.piece import Piece, Place
from shoal.strategies.strategy import Share, Sums


class Layout(ABC):
    """This worker's part of one replica of the model. All workers of the replica call its methods together.

    A sync updates `params` from their gradients and uses nothing else of the layout's division.
    """

    model: nn.Module
    """The modules that this worker computes."""
    params: dict[str, Tensor]
    """This worker's part of each parameter, under the names of the whole model; the optimizer updates these."""
    on_final: OnFinal
    """Calls back when a parameter's gradient of one backward pass is complete."""
    span: SpanRecorder
    zero: Tensor
    """The loss of no samples: a scalar on the model's device, in the precision of its parameters."""
    sharded_over: Sequence[Group] = ()
    """The groups that divide the parameters: a norm over all parameters is summed over these, and over no others."""
    repeated: Collection[str] = ()
    """Parameters that another worker of this replica holds too and counts in norms, so that this one does not."""
    final_in_backward: bool = True
    """Whether gradients become whole during the last backward pass: then they can be sent before it ends."""
    all_names: Collection[str] = ()
    """Parameters and buffers of the whole model, also those that only other workers hold."""
    trained_names: Mapping[str, str]
    """Every name of a trained parameter in the whole model (tied ones have several), and its name in `params`."""
    updates_inside: bool = False
    """Whether a step updates after every micro-batch: then a sync calls `update_each` instead of `gradients`."""

    counter: CountedLoss | None = None
    """The loss, if it returns pairs (sum, count): gradients are then multiplied by samples / count of all workers."""
    reports_loss: bool = True
    """Whether the loss that this worker computes is reported: one of those that compute the same loss reports it."""

    measures: Sequence[Measure] = ()
    """The metrics that `evaluate` sums beside the loss."""

    @abstractmethod
    def gradients(self, share: Share, before_last: Callable[[], None] | None = None) -> Tensor:
        """Set fresh gradients of a whole share, and return this worker's part of its loss.

        The parts of the replica's workers add up to the sum of the losses divided by the global number of samples.
        `before_last` is called when the last backward pass begins: gradients that become final from then on are whole.
        A layout whose gradients are not `final_in_backward` calls it when they are whole. It is not
        called without samples.
        """

    def take_count(self) -> Tensor | float:
        """This worker's part of the count of the last share, by a loss that counts."""
        count = 0.0 if self.counter is None else self.counter.take()
        return count if self.reports_loss else 0.0

    def update_each(self, share: Share, update: Callable[[], object]) -> Tensor:
        """Of a layout that `updates_inside`: train with the micro-batches of a share, each a batch of its own.

        Sets the gradients of one micro-batch, the mean over its samples, and calls `update`, which changes `params` by
        them; then those of the next. Returns this worker's part of the loss, as `gradients` does.
        """
        del share, update
        raise NotImplementedError(f"{type(self).__name__} does not update inside a step")

    @abstractmethod
    def evaluate(self, batch: Batch) -> Sums:
        """Loss, correct predictions and metrics on a batch, in evaluation mode.

        The same on all workers of the replica.
        """

    @abstractmethod
    def place_of(self, name: str) -> Place:
        """The place of this worker's part of a parameter in the whole."""

    def all_norms(self, norms: Mapping[str, Tensor]) -> Tensor:
        """The norms of the gradients' chunks, in their order; those of `repeated` parameters are not among them."""
        return in_order(norms)

    @abstractmethod
    def pieces(self) -> list[Piece]:
        """Parameters and buffers that this worker holds, as `model.<name>`."""

    @abstractmethod
    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load this worker's parts of the whole tensors `model.<name>`; an error if they are of another model."""
