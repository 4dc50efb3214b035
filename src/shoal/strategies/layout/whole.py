"""`whole`: every worker computes the whole model; with tensor parallelism, its own part of every divided layer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.data.dataset import Batch
from shoal.events.spans import SpanRecorder
from shoal.models.losses import CountedLoss
from shoal.models.metrics import Measure
from shoal.strategies.gradient_engine import GradientEngine, Loss, accumulate, evaluate_batch
from shoal.strategies.layout.layout import Layout
from shoal.strategies.leaf_sums import LeafSums
from shoal.strategies.pieces.piece import Piece, Place
from shoal.strategies.pieces.state import load_weights, model_pieces, names_of, whole_place
from shoal.strategies.strategy import Gradients, Share, Sums

if TYPE_CHECKING:
    from shoal.strategies.tensor.divide import TensorParts


@final
class Whole(Layout):
    """The model and its engine: parts of a share go through it one after the other.

    A model whose layers `tensor_parallel` has divided is computed like any other, because its layers communicate; only
    what this worker holds is then a part of the whole (`parts`), and of the loss, which all have, one counts.
    With `leaf_sums`, parts are summed along a tree instead of one after the other.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        engine: GradientEngine,
        span: SpanRecorder,
        conditions: Callable[[Gradients], Gradients] = lambda gradients: gradients,
        replica: int = 0,
        parts: "TensorParts | None" = None,
        leaf_sums: LeafSums | None = None,
        measures: Sequence[Measure] = (),
    ) -> None:
        self.model = model
        self.params = engine.params
        self.on_final = engine.on_final
        self.autocast = engine.autocast
        self.span = span
        self.loss, self.measures = loss, measures
        self.counter = loss if isinstance(loss, CountedLoss) else None
        self.conditions = conditions
        """Applies the simulated bottlenecks and faults to a function that computes gradients."""
        dtypes = [param.dtype for param in self.params.values()]
        # Losses are not in half precision, even where all parameters are.
        dtype = torch.promote_types(dtypes[0], torch.float32).to_real()
        self.zero = next(iter(self.params.values())).detach().new_zeros((), dtype=dtype)
        self._is_mixed = torch.bfloat16 in dtypes
        self._gradients = conditions(engine.gradients)
        self._accumulate = accumulate if leaf_sums is None else leaf_sums
        self.final_in_backward = leaf_sums is None
        self._place = partial(whole_place if parts is None else parts.place, replica=replica)
        self.reports_loss = parts is None or parts.group.rank == 0
        self.sharded_over: Sequence[Group] = () if parts is None else (parts.group,)
        self.repeated: Collection[str] = () if parts is None else parts.repeated
        self.all_names: Collection[str] = () if parts is None else parts.names
        self.trained_names = names_of(model.state_dict(keep_vars=True), self.params)

    def gradients(self, share: Share, before_last: Callable[[], None] | None = None) -> Tensor:
        """Sum the gradients of all parts."""
        for param in self.params.values():
            param.grad = None
        loss = self._accumulate(self._gradients, share, self.zero, before_last)
        return loss if self.reports_loss else self.zero

    def evaluate(self, batch: Batch) -> Sums:
        """Loss, correct predictions and metrics on a batch."""
        # Parameters in bfloat16 do not combine with inputs in float32 otherwise.
        with self.autocast(batch.device.type) if self._is_mixed else nullcontext():
            return evaluate_batch(self.model, self.loss, batch, self.measures)

    def place_of(self, name: str) -> Place:
        """The whole parameter, or this worker's part of it."""
        return self._place(name, self.params[name])

    def pieces(self) -> list[Piece]:
        """Every parameter and buffer that this worker holds."""
        return model_pieces(self.model.state_dict(), self._place)

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Copy the saved weights, or this worker's parts of them, into the model."""
        load_weights(self.model, saved, "model.", self._place, self.all_names)
