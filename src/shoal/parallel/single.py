"""`single`: one worker, the whole model, the whole batch. The reference that every other strategy must equal."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from shoal.data.dataset import Batch
from shoal.events.spans import SpanRecorder
from shoal.parallel.engine import Engine
from shoal.parallel.state import load_pieces, pieces_of
from shoal.parallel.step import Loss, accumulate, clip_by_norm, evaluate_batch
from shoal.parallel.strategy import Pieces, Share, StepResult, Sums


class Single:
    """Phase 1, gradients: summed over the parts of the batch. Phase 2, clip. Phase 3, update."""

    data_rank = 0
    data_size = 1

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        engine: Engine,
        optimizer: torch.optim.Optimizer,
        clip_norm: float | None,
        span: SpanRecorder,
    ) -> None:
        self.model = model
        self._loss = loss
        self._engine = engine
        self._optimizer = optimizer
        self._clip_norm = clip_norm
        self._span = span
        self._params = list(engine.params.values())
        # A user's optimizer may give groups rates of their own: they keep their ratio to the first.
        base = optimizer.param_groups[0]["lr"]
        self._lr_ratios = [group["lr"] / base for group in optimizer.param_groups]

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch."""
        for group, ratio in zip(self._optimizer.param_groups, self._lr_ratios, strict=True):
            group["lr"] = lr * ratio
        for param in self._params:
            param.grad = None
        loss = accumulate(self._engine.gradients, share)
        if self._clip_norm is not None:
            with self._span("clip", "compute"):
                clip_by_norm(
                    (param.grad for param in self._params if param.grad is not None), self._clip_norm
                )
        with self._span("update", "compute"):
            self._optimizer.step()
        return StepResult(loss)

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch."""
        return evaluate_batch(self.model, self._loss, batch)

    def pieces(self) -> Pieces:
        """Everything: there is nobody else."""
        return pieces_of(self.model, self._engine.params, self._optimizer)

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Take the whole state."""
        load_pieces(self.model, self._engine.params, self._optimizer, pieces)
