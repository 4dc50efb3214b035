"""`naive`: after backward, the workers aggregate the gradient of one parameter after the other.

The simplest sync, and the one to read first: no buckets, no overlap, one exchange per parameter.
"""

from dataclasses import replace
from typing import final

from torch import Tensor

from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.pieces.piece import floats_of
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.settings import Combine, NaiveConfig
from shoal.strategies.strategy import Share, StepResult


@final
class Naive(Sync):
    """Phase 1, gradients of this worker's share. Phase 2, check that all are finite. Phase 3, exchange and update.

    With nᵢ samples of worker i, N samples of all W workers, and ḡᵢ the mean gradient over i's samples, the update uses
    (`combine`)::

        exact            Σ gᵢ, each loss divided by N: uneven and empty shares are exact without weights
        weighted_mean    Σ (nᵢ/N)·ḡᵢ: the same number, with one more multiplication
        mean             Σ ḡᵢ / W: the mean of means; the same only if all shares are equal
        sum              Σ ḡᵢ: W times that; with SGD, equivalent to a learning rate W times as large

    `combine_stages` changes it in the course of the training: 0=sum,0.5=mean. The stage is a pure function of the step,
    so all workers are in the same one.

    With `aggregate="parameters"` each worker updates with its own mean gradient, and then parameters and the
    optimizer's moments become Σ (nᵢ/N)·θᵢ (for `mean`, Σ θᵢ / W). SGD's update is linear in the gradient, also with
    momentum and weight decay, so this equals one machine exactly. Adam's is not linear: it divides by the root of a
    moment, and a mean of quotients is not the quotient of means. Clipping, done by each worker alone, is not linear
    either.

    Replicas start from rank 0's state and make the same updates, so their bits stay equal. Costs one exchange
    per parameter (and per moment, if parameters are aggregated) and two small all-reduces per step.
    """

    def __init__(self, parts: SyncParts, config: NaiveConfig) -> None:
        super().__init__(parts)
        self._config, self._training = config, parts.training_clock
        sync_initial_state(parts.group, self.pieces(), refuse=config.check_init)

    @property
    def combine(self) -> Combine:
        """How the gradients of the step in progress are combined."""
        return self._training.current(self._config.stages())

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        part = share.num_samples / share.num_samples_global
        if self.combine == "exact" and self._config.aggregate == "gradients":
            loss = self._layout.gradients(share)
        else:
            own = replace(share, num_samples_global=max(1, share.num_samples))
            loss = self._layout.gradients(own) * part
        with self._layout.span("exchange", "move"):
            grads = self._present_gradients()
            self._guard.look(*grads.values())
            verdict = self._guard.agree(loss, share)
        if verdict.may_update and self._config.aggregate == "gradients":
            self._sum_gradients(grads, part)
            self._update(lr, scale=verdict.scale)
        elif verdict.may_update:
            self._update(lr)
            self._average_parameters(part)
        return StepResult(verdict.loss, verdict.stop_signal)

    def _sum_gradients(self, grads: dict[str, Tensor], part: float) -> None:
        """Aggregate every gradient over the workers."""
        combine = self.combine
        with self._layout.span("exchange", "move"):
            for name, grad in grads.items():
                if combine == "weighted_mean":
                    grad *= part
                self._exchange_in_place(name, grad)
                if combine == "mean":
                    grad /= self._group.size

    def _average_parameters(self, part: float) -> None:
        """Make parameters, statistics and moments the mean of all workers', weighted by their numbers of samples.

        Counts (steps, batches) are the same on all workers anyway.
        """
        moments = [
            piece
            for piece in self._update.pieces()
            # Not the count of steps, which has the shape of a parameter that is a single number.
            if piece.place.shape and not piece.name.endswith(".step")
        ]
        weight = 1 / self._group.size if self.combine == "mean" else part
        with self._layout.span("exchange", "move"):
            for name, tensor in floats_of([*self._layout.pieces(), *moments]).items():
                tensor *= weight
                self._exchange_in_place(name, tensor)

    def _exchange_in_place(self, name: str, tensor: Tensor) -> None:
        """Exchange a tensor. An exchange takes flat memory: a tensor that is not contiguous is copied and back."""
        contiguous = tensor.contiguous()
        self._exchange(self._group, Bucket.of(name, contiguous)).wait()
        if contiguous is not tensor:
            tensor.copy_(contiguous)
