"""`single`: one worker, the whole model, the whole batch. The reference that every other strategy must equal."""

from collections.abc import Mapping

from torch import Tensor

from shoal.data.dataset import Batch
from shoal.parallel.replica import Replica
from shoal.parallel.strategy import Pieces, Share, StepResult, Sums


class Single:
    """Phase 1, gradients: summed over the parts of the batch. Phase 2, update."""

    data_rank = 0
    data_size = 1

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch."""
        loss = self._replica.gradients(share)
        self._replica.update(lr)
        return StepResult(loss)

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch."""
        return self._replica.evaluate(batch)

    def pieces(self) -> Pieces:
        """Everything: there is nobody else."""
        return self._replica.pieces()

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Take the whole state."""
        self._replica.load(pieces)
