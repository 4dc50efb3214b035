"""`ddp`: gradients are summed over the workers in buckets, while backward is still at work where that pays."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.config.schema import DdpConfig
from shoal.data.dataset import Batch
from shoal.parallel.buckets.bucket import Bucket
from shoal.parallel.buckets.buffer_sync import BufferSync, buffers_of
from shoal.parallel.buckets.plan import MIB
from shoal.parallel.buckets.reducer import Reducer, ReducerOptions
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.guard import ROW, Guard
from shoal.parallel.lockstep import in_lockstep
from shoal.parallel.replica import Replica
from shoal.parallel.strategy import Pieces, Share, StepResult, Sums
from shoal.parallel.sync.alike import begin_alike
from shoal.parallel.sync_batchnorm import SyncBatchNorm, give_group


class Ddp:
    """Phase 1, gradients of this worker's share; the last part's fill buckets, which are exchanged when they are full.

    Phase 2, the rest of the exchange, and the loss. Phase 3, update.

    As under `naive`, every loss is divided by the *global* number of samples and gradients are summed: uneven and empty
    shares are exact. Costs one exchange per bucket (25 MiB of gradients); the losses travel behind the last one where
    the exchange is a sum, and by a small all-reduce of their own where it is not. Buffers (running statistics) become
    rank 0's in every step. With one worker there is nothing to exchange: no hook, no bucket, `single`'s own path.
    """

    def __init__(
        self, replica: Replica, group: Group, exchange: Exchange, guard: Guard, config: DdpConfig
    ) -> None:
        self._replica = replica
        self._group = group
        self._guard = guard
        self._exchange = exchange
        self._loss, self._part = replica.zero, 0.0
        self.data_rank = group.rank
        self.data_size = group.size
        self._reducer: Reducer | None = None
        self._buffers: BufferSync | None = None
        self._in_lockstep = False
        if group.size > 1:
            begin_alike(group, replica.pieces())
            if config.sync_batchnorm:
                SyncBatchNorm.convert_sync_batchnorm(replica.model)
            self._in_lockstep = give_group(replica.model, group)
            if names := [name for name, _ in replica.model.named_buffers()]:
                self._buffers = BufferSync(group, buffers_of(replica.model, names))
            self._reducer = Reducer(
                group,
                replica.params,
                replica.on_final,
                self._send,
                ReducerOptions(
                    first_bytes=int(config.first_bucket_mib * MIB),
                    most_bytes=int(config.bucket_mib * MIB),
                    unused=config.unused,
                    # A sum can carry the guard's table too; any other rule would make something else of it.
                    num_piggyback=ROW * group.size if exchange.is_sum else 0,
                ),
            )

    def _send(self, bucket: Bucket) -> Work:
        self._guard.look(bucket.gradients)
        if bucket.piggyback is not None:
            self._guard.write(bucket.piggyback.view(-1, ROW), self._loss, self._part)
        return self._exchange(self._group, bucket)

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        reducer, replica = self._reducer, self._replica
        if reducer is None:
            loss = replica.gradients(share)
            replica.update(lr)
            return StepResult(loss)
        if self._in_lockstep:
            share = replace(share, parts=in_lockstep(self._group, share.parts, replica.zero.device))
        loss = replica.gradients(share, before_last=reducer.prepare)
        part = share.num_samples / share.num_samples_global
        with replica.span("exchange", "move"):
            self._loss, self._part = loss, part
            reducer.complete()
            if self._buffers is not None:
                self._buffers.update()
            if reducer.piggyback is None:
                # Before the buckets are waited for: the loss is under way together with them.
                loss, may_update = self._guard.agree(loss, part)
                reducer.wait()
            else:
                reducer.wait()
                loss, may_update = self._guard.read(reducer.piggyback.view(-1, ROW), loss)
        if may_update:
            replica.update(lr)
        return StepResult(loss)

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch: every worker has the whole model."""
        return self._replica.evaluate(batch)

    def pieces(self) -> Pieces:
        """The whole state: all replicas have the same."""
        return self._replica.pieces()

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Take the whole state."""
        self._replica.load(pieces)
