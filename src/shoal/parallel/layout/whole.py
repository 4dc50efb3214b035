"""`whole`: every worker holds the whole model."""

from collections.abc import Callable, Mapping
from typing import final

from torch import Tensor, nn

from shoal.data.dataset import Batch
from shoal.events.spans import SpanRecorder
from shoal.parallel.gradient_engine import GradientEngine
from shoal.parallel.layout.layout import Layout
from shoal.parallel.piece import Piece, Place
from shoal.parallel.state import load_weights
from shoal.parallel.step import Loss, accumulate, evaluate_batch
from shoal.parallel.strategy import Gradients, Share, Sums


def _unchanged(gradients: Gradients) -> Gradients:
    return gradients


@final
class Whole(Layout):
    """The model and its engine: parts of a share go through it one after the other."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        engine: GradientEngine,
        span: SpanRecorder,
        conditions: Callable[[Gradients], Gradients] = _unchanged,
        replica: int = 0,
    ) -> None:
        self.model = model
        self.params = engine.params
        self.on_final = engine.on_final
        self.autocast = engine.autocast
        self.span = span
        self.loss = loss
        self.conditions = conditions
        """Applies the simulated bottlenecks and faults to a function that computes gradients."""
        self.zero = next(iter(self.params.values())).detach().new_zeros(())
        self._gradients = conditions(engine.gradients)
        self._replica = replica

    def gradients(self, share: Share, before_last: Callable[[], None] | None = None) -> Tensor:
        """Sum the gradients of all parts."""
        for param in self.params.values():
            param.grad = None
        return accumulate(self._gradients, share, self.zero, before_last)

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and number of correct predictions on a batch."""
        return evaluate_batch(self.model, self.loss, batch)

    def place_of(self, name: str) -> Place:
        """The whole parameter."""
        return Place.whole(self.params[name], self._replica)

    def pieces(self) -> list[Piece]:
        """Every parameter and buffer."""
        state = self.model.state_dict()
        return [
            Piece.whole(f"model.{name}", tensor.detach(), self._replica) for name, tensor in state.items()
        ]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Copy the saved weights into the model."""
        load_weights(self.model, saved, prefix="model.")
