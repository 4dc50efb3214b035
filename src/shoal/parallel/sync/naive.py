"""`naive`: each parameter's gradient is summed over the workers, one after the other, when backward is over.

The first thing one would write, and the one to read first: no buckets, no overlap, one collective per parameter.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.config.schema import NaiveConfig
from shoal.data.dataset import Batch
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.guard import Guard
from shoal.parallel.replica import Replica
from shoal.parallel.strategy import Pieces, Share, StepResult, Sums


class Naive:
    """Phase 1, gradients of this worker's share. Phase 2, sum each over the workers. Phase 3, update.

    Every loss is divided by the *global* number of samples, so gradients are summed and never averaged: uneven and
    empty shares are exact. Replicas start from rank 0's state and make the same update of the same bits, so they stay
    equal. Costs one all-reduce per parameter and two small ones per step.
    """

    def __init__(
        self, replica: Replica, group: Group, exchange: Exchange, guard: Guard, config: NaiveConfig
    ) -> None:
        self._replica = replica
        self._group = group
        self._exchange = exchange
        self._guard = guard
        self._config = config
        self.data_rank = group.rank
        self.data_size = group.size
        for piece in replica.pieces().values():
            group.broadcast(piece).wait()

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        loss = self._replica.gradients(share)
        with self._replica.span("exchange", "move"):
            self._sum_gradients()
            loss, may_update = self._guard.agree(loss)
        if may_update:
            self._replica.update(lr)
        return StepResult(loss)

    def _sum_gradients(self) -> None:
        """Make every gradient the sum over the workers.

        A parameter that no worker's samples reached keeps no gradient at all, as on one machine, where the optimizer
        then leaves it alone; so the workers first tell each other which gradients there are.
        """
        params = list(self._replica.params.values())
        present = torch.tensor([param.grad is not None for param in params], dtype=torch.int32)
        self._group.all_reduce(present, Op.MAX).wait()
        for param, somewhere in zip(params, present.tolist(), strict=True):
            if somewhere:
                grad = torch.zeros_like(param) if param.grad is None else param.grad
                self._guard.look(grad)
                self._exchange(self._group, grad).wait()
                param.grad = grad

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch: every worker has the whole model."""
        return self._replica.evaluate(batch)

    def pieces(self) -> Pieces:
        """The whole state: all replicas have the same."""
        return self._replica.pieces()

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Take the whole state."""
        self._replica.load(pieces)
