"""`naive`: when backward is over, the workers agree on each parameter's gradient, one after the other.

The first thing one would write, and the one to read first: no buckets, no overlap, one exchange per parameter.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.config.schema import NaiveConfig
from shoal.data.dataset import Batch
from shoal.parallel.buckets.bucket import Bucket
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.guard import Guard
from shoal.parallel.replica import Replica
from shoal.parallel.strategy import Pieces, Share, StepResult, Sums
from shoal.parallel.sync.alike import begin_alike


class Naive:
    """Phase 1, gradients of this worker's share. Phase 2, is anyone's not finite? Phase 3, exchange and update.

    Write nᵢ for worker i's samples, N for all, W for the workers, and ḡᵢ for the mean gradient over i's samples. What
    the update is made of (`combine`)::

        exact            Σ gᵢ, each loss divided by N: nothing to weigh, uneven and empty shares are exact
        weighted_mean    Σ (nᵢ/N)·ḡᵢ: the same number, by one more multiplication
        mean             Σ ḡᵢ / W: the mean of means, which equals it only where all shares are equal
        sum              Σ ḡᵢ: W times that, so with SGD as good as a learning rate W times as large

    With `aggregate="parameters"` each worker updates with its own mean gradient, and then parameters and the
    optimizer's moments become Σ (nᵢ/N)·θᵢ (for `mean`, Σ θᵢ / W). An update of SGD is linear in the gradient, with
    momentum and weight decay too, so this equals one machine exactly. Adam's is not: it divides by the root of a
    moment, and the mean of quotients is no quotient of means. Neither is clipping, which each worker then does alone.

    Replicas begin with rank 0's state and make the same update of the same bits, so they stay equal. Costs one exchange
    per parameter (and per moment, if parameters are aggregated) and two small all-reduces per step.
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
        begin_alike(group, replica.pieces(), refuse=config.check_init)

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        part = share.num_samples / share.num_samples_global
        loss = self._gradients(share, part)
        with self._replica.span("exchange", "move"):
            grads = self._present_gradients()
            for grad in grads.values():
                self._guard.look(grad)
            loss, may_update = self._guard.agree(loss, part)
        if may_update and self._config.aggregate == "gradients":
            self._sum_gradients(grads, part)
            self._replica.update(lr)
        elif may_update:
            self._replica.update(lr)
            self._average_parameters(part)
        return StepResult(loss)

    def _gradients(self, share: Share, part: float) -> Tensor:
        """Gradients of this worker's loss: its part of the exact one, or the mean over its own samples."""
        if self._config.combine == "exact" and self._config.aggregate == "gradients":
            return self._replica.gradients(share)
        own = replace(share, num_samples_global=max(1, share.num_samples))
        return self._replica.gradients(own) * part

    def _present_gradients(self) -> dict[str, Tensor]:
        """The gradients there are; zero where only other workers' samples reached a parameter.

        A parameter that no worker's samples reached keeps no gradient at all, as on one machine, where the optimizer
        then leaves it alone; so the workers first tell each other which gradients there are.
        """
        params = self._replica.params
        present = torch.tensor([param.grad is not None for param in params.values()], dtype=torch.int32)
        self._group.all_reduce(present, Op.MAX).wait()
        grads: dict[str, Tensor] = {}
        for (name, param), somewhere in zip(params.items(), present.tolist(), strict=True):
            if somewhere:
                grads[name] = param.grad = torch.zeros_like(param) if param.grad is None else param.grad
        return grads

    def _sum_gradients(self, grads: dict[str, Tensor], part: float) -> None:
        """Make every gradient what all workers' gradients are together."""
        combine = self._config.combine
        with self._replica.span("exchange", "move"):
            for name, grad in grads.items():
                if combine == "weighted_mean":
                    grad *= part
                self._exchange_in_place(name, grad)
                if combine == "mean":
                    grad /= self._group.size

    def _average_parameters(self, part: float) -> None:
        """Make parameters and moments the mean of all workers', weighted by their numbers of samples."""
        weight = 1 / self._group.size if self._config.combine == "mean" else part
        with self._replica.span("exchange", "move"):
            for name, piece in self._averaged_pieces().items():
                piece *= weight
                self._exchange_in_place(name, piece)

    def _averaged_pieces(self) -> dict[str, Tensor]:
        """Weights, statistics and moments; what counts (steps, batches) is the same on all workers anyway."""
        pieces = self._replica.pieces()
        averaged = {
            name: piece
            for name, piece in pieces.items()
            if name.startswith("model.") and piece.is_floating_point()
        }
        for name, param in self._replica.params.items():
            prefix = f"optim.{name}."
            averaged |= {
                key: piece
                for key, piece in pieces.items()
                if key.startswith(prefix) and piece.is_floating_point() and piece.shape == param.shape
                # The step of a parameter that is a single number has its shape too.
                if key != f"{prefix}step"
            }
        return averaged

    def _exchange_in_place(self, name: str, tensor: Tensor) -> None:
        """An exchange takes flat memory; where a tensor's is not, a copy that is written back."""
        contiguous = tensor.contiguous()
        self._exchange(self._group, Bucket.of(name, contiguous)).wait()
        if contiguous is not tensor:
            tensor.copy_(contiguous)

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch: every worker has the whole model."""
        return self._replica.evaluate(batch)

    def pieces(self) -> Pieces:
        """The whole state: all replicas have the same."""
        return self._replica.pieces()

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Take the whole state."""
        self._replica.load(pieces)
