"""`ddp`: sums gradients over the workers in buckets, during backward where the group allows it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from torch import Tensor

from shoal.comm.group import Work
from shoal.errors import DivergedError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.buffer_sync import BufferSync, buffer_sync_of
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.buckets.reducer import Reducer, ReducerOptions
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.guard import ROW, square_of
from shoal.strategies.memory import FRESH, IN_FLIGHT, Component, Sizes, whole_copy
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.lockstep import in_lockstep
from shoal.strategies.replicas.step_in_backward import RotatingBuckets, bucket_bytes
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.replicas.sync_batchnorm import SyncBatchNorm, give_group
from shoal.strategies.strategy import Share, StepResult


@final
class Ddp(Sync):
    """Phase 1, gradients of this worker's share; the last part's fill buckets, which are exchanged when they are full.

    Phase 2, the rest of the exchange. Phase 3, update.

    Every loss is divided by the *global* number of samples and gradients are summed: uneven and empty shares are exact.
    Costs one exchange per bucket (25 MiB of gradients) and nothing else where the exchange is a sum: losses, norms and
    the stop signal piggyback on the last bucket. Otherwise they take a small all-reduce of their own. Buffers
    (running statistics) become rank 0's in every step. With one worker there is nothing to exchange: no hook, no
    bucket, the path of `single`.

    With `--memory.step_in_backward` phases 2 and 3 of a bucket happen during backward, in memory for two buckets; the
    guard's table is then an all-reduce of its own.

    On a GPU the host does not wait for a step if the exchange is a sum, the optimizer can leave out an update by itself
    and bad numbers stop the run: then the device decides whether to update, and the host reads the reason later.
    """

    def __init__(self, parts: SyncParts, config: DdpConfig) -> None:
        super().__init__(parts)
        group, layout = parts.group, parts.layout
        self._reducer: Reducer | None = None
        self._rotating: RotatingBuckets | None = None
        self._lr = 0.0
        self._buffers: BufferSync | None = None
        self._in_lockstep = False
        self._waits = not (layout.zero.is_cuda and parts.guard.can_wait and parts.update.can_be_masked)
        self._to_report = layout.zero, Share((), 1, 0)
        """This worker's row of the guard's table: the loss of a share."""
        if group.size == 1:
            return
        sync_initial_state(group, self.pieces())
        if config.sync_batchnorm:
            SyncBatchNorm.convert_sync_batchnorm(layout.model)
        self._in_lockstep = give_group(layout.model, group)
        self._buffers = buffer_sync_of(group, layout.model)
        if parts.step_in_backward:
            most_bytes = bucket_bytes(config.bucket_mib)
            self._rotating = RotatingBuckets(
                group, layout.params, layout.on_final, self._send, self._arrived, most_bytes
            )
            return
        options = ReducerOptions(
            first_bytes=int(config.first_bucket_mib * MIB),
            most_bytes=int(config.bucket_mib * MIB),
            unused=config.unused,
            final_in_backward=layout.final_in_backward,
            # The guard's table can piggyback on a sum, but not on another rule.
            num_piggyback=ROW * group.size if parts.exchange.is_sum else 0,
        )
        self._reducer = Reducer(group, layout.params, layout.on_final, self._send, options)
        self._reducer.write_to_slots(layout.model)

    def _send(self, bucket: Bucket) -> Work:
        self._guard.look(bucket.gradients)
        if bucket.piggyback is not None:
            self._guard.write(bucket.piggyback.view(-1, ROW), *self._to_report)
        return self._exchange(self._group, bucket)

    def _arrived(self, bucket: Bucket, params: Sequence[Tensor]) -> None:
        """Update the parameters of a bucket during backward.

        A sum that is not finite stops all workers before it reaches a weight: they hold the same sum, so all find it.
        The weights of buckets before it have been updated by then, with finite numbers.
        """
        if not square_of(bucket.gradients).isfinite():
            # Names the workers whose gradients are not finite; where all are, their sum is not.
            self._guard.agree(*self._to_report)
            raise DivergedError(
                f"the sum of the workers' gradients of {bucket.names[0]} is not finite: stopped before it reached the "
                "weights",
                "Try a tenth of the learning rate.",
            )
        self._update.step_only(params, self._lr)

    def _step_during_backward(self, rotating: RotatingBuckets, share: Share, lr: float) -> StepResult:
        self._lr, self._to_report = lr, (self._layout.zero, share)
        loss = self._layout.gradients(share, before_last=rotating.begin)
        with self._layout.span("exchange", "move"):
            rotating.complete()
            if self._buffers is not None:
                self._buffers.update()
            verdict = self._guard.agree(loss, share)
        return StepResult(verdict.loss, verdict.stop_signal)

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        reducer, layout = self._reducer, self._layout
        if self._in_lockstep:
            share = replace(share, parts=in_lockstep(self._group, share))
        if self._rotating is not None:
            return self._step_during_backward(self._rotating, share, lr)
        if reducer is None:
            return super().step(share, lr)
        loss = layout.gradients(share, before_last=reducer.prepare)
        with layout.span("exchange", "move"):
            self._to_report = loss, share
            reducer.complete()
            if self._buffers is not None:
                self._buffers.update()
            if reducer.piggyback is None:
                # Before waiting for the buckets, so that the table is sent at the same time.
                verdict = self._guard.agree(loss, share)
                reducer.wait()
            else:
                reducer.wait()
                table = reducer.piggyback.view(-1, ROW)
                if not self._waits:
                    later = self._guard.decide_later(table, loss)
                    self._update(lr, unless=later.is_bad, scale=later.scale)
                    return StepResult(later.loss, settle=later.settle)
                verdict = self._guard.decide(table.tolist(), loss)
        if verdict.may_update:
            self._update(lr, scale=verdict.scale)
        return StepResult(verdict.loss, verdict.stop_signal)


def ddp_memory(sizes: Sizes) -> list[Component]:
    """Whole copies, and the buckets of the reducer."""
    if sizes.updated_in_backward:
        # Two buckets are summed and used at a time, while backward produces the gradients of a third.
        return [*whole_copy(sizes), Component(IN_FLIGHT, "2B", 2 * sizes.updated_in_backward)]
    # A gradient has memory of its own until it is copied to its bucket, which then is the gradient.
    return [*whole_copy(sizes), Component(FRESH, "G", sizes.largest)]
