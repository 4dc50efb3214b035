"""No sync: one worker has all the data. With the layout `whole` this is `single`, the reference for every strategy."""

from typing import final

from shoal.parallel.strategy import Share, StepResult
from shoal.parallel.sync.sync import Sync


@final
class NoSync(Sync):
    """Phase 1, gradients: summed over the parts of the batch. Phase 2, update."""

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch."""
        return self._step_of_one_replica(share, lr)
