"""`onecopy`: all workers of a machine map one copy of the weights; each updates its slice of it.

::

    rank 0      gradients 0 ──┐        ┌── sum of slice 0, update of slice 0 ──┐
                              ├─ all ──┤                                       ├─ all ── next forward
    rank 1      gradients 1 ──┘ wrote  └── sum of slice 1, update of slice 1 ──┘ wrote
                              weights are read          weights are written

Nothing is gathered: a weight that one worker has written is there for all. No worker writes weights before all have
finished backward, and none reads them before all have written.
"""

from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Finished, Work
from shoal.comm.reduction import Op, reduce_into_first
from shoal.config.schema import OneCopyConfig
from shoal.errors import ConfigError
from shoal.parallel.buckets.bucket import Bucket
from shoal.parallel.buckets.buffer_sync import BufferSync, buffers_of
from shoal.parallel.buckets.reducer import Reducer, ReducerOptions
from shoal.parallel.guard import ROW
from shoal.parallel.slices import Slices
from shoal.parallel.strategy import Share, StepResult
from shoal.parallel.sync.initial_state import sync_initial_state
from shoal.parallel.sync.sync import Sync, SyncParts

_ALL = 2**62
"""Bytes of a bucket: all gradients of one kind are one bucket, since nothing moves before all workers are ready."""


@final
class OneCopy(Sync):
    """Phase 1, gradients of this worker's share, copied to memory that all workers see. Phase 2, wait for all.

    Phase 3, this worker sums its slice of all workers' gradients and updates its slice of the weights. Phase 4, wait
    for all.

    Memory on W workers, for Ψ parameters in float32 with Adam: weights 4Ψ once per machine, gradients 4Ψ per worker
    (twice while backward produces them), moments 8Ψ / W per worker. Costs two barriers per step and no message.

    Not safe against the death of a worker in phase 3: the one copy is then half updated. The run goes on from its last
    checkpoint.
    """

    def __init__(self, parts: SyncParts, config: OneCopyConfig) -> None:
        super().__init__(parts)
        group, layout = parts.group, parts.layout
        self._reducer: Reducer | None = None
        self._buffers: BufferSync | None = None
        self._to_report = layout.zero, Share((), 1, 0)
        if group.size == 1:
            return
        if not group.maps_memory or not layout.zero.is_cpu:
            where = f"a {group.kind} group" if layout.zero.is_cpu else "GPUs"
            raise ConfigError(
                f"strategy onecopy needs workers that see each other's memory, and does not support {where}",
                "Use --group shm on one machine with --device cpu, or --strategy ddp.",
            )
        sync_initial_state(group, self.pieces())
        if names := [name for name, _ in layout.model.named_buffers()]:
            self._buffers = BufferSync(group, buffers_of(layout.model, names))
        for param in layout.params.values():
            param.data = param.data.contiguous()
        options = ReducerOptions(_ALL, _ALL, config.unused, num_piggyback=ROW * group.size)
        self._reducer = Reducer(group, layout.params, layout.on_final, self._send, options)
        slices = Slices(layout, group)
        self._gradients = [self._map(bucket, slices) for bucket in self._reducer.buckets]
        """For each bucket, this worker's slice of all workers' gradients."""
        self._rows = self._rows_of_all()
        self._slices = {name: (owned, owned.grad) for name, owned in slices.params.items()}
        self._may_be_unused = config.unused == "zero"
        self._update = parts.update.over(slices)
        group.barrier().wait()

    def _map(self, bucket: Bucket, slices: Slices) -> list[Tensor]:
        """Move the bucket's parameters to rank 0's memory, and own a slice of them."""
        group, params = self._group, self._layout.params
        mine = group.empty(bucket.gradients.numel(), bucket.flat.dtype)
        weights = group.views_of_all(mine)[0]
        views = bucket.split(weights)
        if group.rank == 0:
            for name, view in zip(bucket.names, views, strict=True):
                view.copy_(params[name].detach())
        for name, view in zip(bucket.names, views, strict=True):
            params[name].data = view
        gradients = group.views_of_all(bucket.gradients)
        # The sum of a slice is formed in rank 0's memory. Only the slice's owner reads and writes there.
        own = slices.add(bucket, weights, gradients[0])
        return [each[own] for each in gradients]

    def _rows_of_all(self) -> list[Tensor]:
        """All workers' rows of the guard's table, if they are written next to the gradients."""
        assert self._reducer is not None
        piggyback = self._reducer.piggyback
        tables = [] if piggyback is None else self._group.views_of_all(piggyback)
        return [table.view(-1, ROW)[rank] for rank, table in enumerate(tables)]

    def _leave_out_unused(self) -> None:
        """Where no worker has a gradient, the optimizer skips the parameter, as on one machine."""
        for name, (owned, gradient) in self._slices.items():
            owned.grad = None if self._layout.params[name].grad is None else gradient

    def _send(self, bucket: Bucket) -> Work:
        """Everything is where the others see it."""
        self._guard.look(bucket.gradients)
        if bucket.piggyback is not None:
            self._guard.write(bucket.piggyback.view(-1, ROW), *self._to_report)
        return Finished()

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        reducer, layout, group = self._reducer, self._layout, self._group
        if reducer is None:
            return self._step_of_one_replica(share, lr)
        loss = layout.gradients(share, before_last=reducer.prepare)
        with layout.span("exchange", "move"):
            self._to_report = loss, share
            reducer.complete()
            reducer.wait()
            if self._buffers is not None:
                self._buffers.update()
            group.barrier().wait()
            rows = self._rows
            verdict = self._guard.read(torch.stack(rows), loss) if rows else self._guard.agree(loss, share)
            if verdict.may_update:
                for parts in self._gradients:
                    reduce_into_first(Op.SUM, parts)
                if self._may_be_unused:
                    self._leave_out_unused()
        if verdict.may_update:
            self._update(lr)
        with layout.span("exchange", "move"):
            group.barrier().wait()
        return StepResult(verdict.loss, verdict.stop_signal)
