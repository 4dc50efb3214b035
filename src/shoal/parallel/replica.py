"""A whole copy of the model on one worker, with the optimizer that updates it: what `single` and replicas share."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from shoal.data.dataset import Batch
from shoal.events.spans import SpanRecorder
from shoal.parallel.engine import Engine
from shoal.parallel.state import load_pieces, pieces_of
from shoal.parallel.step import Loss, accumulate, clip_by_norm, evaluate_batch
from shoal.parallel.strategy import Gradients, Pieces, Share, Sums


class Replica:
    """Gradients of a share, and the update from them: the two ends of every strategy's step."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        engine: Engine,
        optimizer: torch.optim.Optimizer,
        clip_norm: float | None,
        span: SpanRecorder,
        conditions: Callable[[Gradients], Gradients] = lambda gradients: gradients,
    ) -> None:
        self.model = model
        self.params = engine.params
        self.on_final = engine.on_final
        self.autocast = engine.autocast
        self.span = span
        self.loss = loss
        self.conditions = conditions
        """Makes a worker's computation slow or wrong on purpose; applied to whatever computes its gradients."""
        self._gradients = conditions(engine.gradients)
        self._optimizer = optimizer
        self._clip_norm = clip_norm
        self.zero = next(iter(self.params.values())).detach().new_zeros(())
        # A user's optimizer may give groups rates of their own: they keep their ratio to the first.
        base = optimizer.param_groups[0]["lr"]
        self._lr_ratios = [group["lr"] / base for group in optimizer.param_groups]

    def gradients(self, share: Share, before_last: Callable[[], None] | None = None) -> Tensor:
        """Fresh gradients of a share, summed over its parts; the loss, divided by the global count.

        `before_last` is called when the last part begins: gradients that become final from then on are whole.
        """
        for param in self.params.values():
            param.grad = None
        return accumulate(self._gradients, share, self.zero, before_last)

    def update(self, lr: float) -> None:
        """Clip, if asked, and step."""
        if self._clip_norm is not None:
            with self.span("clip", "compute"):
                grads = [param.grad for param in self.params.values() if param.grad is not None]
                clip_by_norm(grads, self._clip_norm)
        for group, ratio in zip(self._optimizer.param_groups, self._lr_ratios, strict=True):
            group["lr"] = lr * ratio
        with self.span("update", "compute"):
            self._optimizer.step()

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch."""
        return evaluate_batch(self.model, self.loss, batch)

    def pieces(self) -> Pieces:
        """The whole state."""
        return pieces_of(self.model, self.params, self._optimizer)

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Take the whole state."""
        load_pieces(self.model, self.params, self._optimizer, pieces)
