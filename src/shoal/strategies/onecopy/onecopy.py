"""`onecopy`: all workers of a machine map one copy of the weights; each updates its slice of it."""

from typing import final

from torch import Tensor

from shoal.comm.group import Finished, Work
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.buffer_sync import buffer_sync_of
from shoal.strategies.guard import ROW
from shoal.strategies.memory import FRESH, Component, Sizes, main_parts
from shoal.strategies.onecopy.mapped_weights import MappedWeights, check_maps_memory
from shoal.strategies.onecopy.settings import OneCopyConfig
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.strategy import Share, StepResult


@final
class OneCopySync(Sync):
    """Phase 1, gradients of this worker's share, copied to memory that all workers see. Phase 2, wait for all.

    Phase 3, this worker sums its slice of all workers' gradients and updates its slice of the weights. Phase 4, wait
    for all.

    Memory on W workers, for Ψ parameters in float32 with Adam: weights 4Ψ once per machine, gradients 4Ψ per worker,
    moments 8Ψ / W per worker. Costs two barriers per step and no message: what `ddp` sends counts as mapped.

    Not safe against the death of a worker in phase 3: the one copy is then half updated. The run goes on from its last
    checkpoint.
    """

    def __init__(self, parts: SyncParts, config: OneCopyConfig) -> None:
        super().__init__(parts)
        group, layout = parts.group, parts.layout
        self._weights: MappedWeights | None = None
        self._to_report = layout.zero, Share((), 1, 0)
        """This worker's row of the guard's table: the loss of a share."""
        if group.size == 1:
            return
        check_maps_memory(group, layout.params)
        sync_initial_state(group, self.pieces())
        self._buffers = buffer_sync_of(group, layout.model)
        self._weights = MappedWeights(
            group,
            layout,
            layout.on_final,
            self._send,
            config.unused,
            layout.final_in_backward,
            num_piggyback=ROW * group.size,
        )
        self._weights.reducer.write_to_slots(layout.model)
        piggyback = self._weights.reducer.piggyback
        tables: list[Tensor] = [] if piggyback is None else group.views_of_all(piggyback)
        # As numpy arrays, of which reading four numbers takes a tenth of the time.
        self._rows = [table.view(-1, ROW)[rank].numpy() for rank, table in enumerate(tables)]
        """All workers' rows of the guard's table, if they are written next to the gradients."""
        self._update = parts.update.over(self._weights.slices)

    def _send(self, bucket: Bucket) -> Work:
        """Everything is where the others see it."""
        self._guard.look(bucket.gradients)
        if bucket.piggyback is not None:
            self._guard.write(bucket.piggyback.view(-1, ROW), *self._to_report)
        return Finished()

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch, of which this worker has a share."""
        weights, layout, group = self._weights, self._layout, self._group
        if weights is None:
            return super().step(share, lr)
        reducer = weights.reducer
        loss = layout.gradients(share, before_last=reducer.prepare)
        with layout.span("exchange", "move"):
            self._to_report = loss, share
            reducer.complete()
            reducer.wait()
            for bucket in reducer.buckets:  # summed by the owners of slices, whose new weights all see
                group.note_mapped("all_reduce", bucket.flat.numel(), bucket.flat.dtype)
            if self._buffers is not None:
                self._buffers.update()
            group.barrier().wait()
            if self._rows:
                verdict = self._guard.decide([row.tolist() for row in self._rows], loss)
            else:
                verdict = self._guard.agree(loss, share)
            if verdict.may_update:
                weights.sum_gradients()
        if verdict.may_update:
            self._update(lr, scale=verdict.scale)
        with layout.span("exchange", "move"):
            group.barrier().wait()
        return StepResult(verdict.loss, verdict.stop_signal)


def onecopy_memory(sizes: Sizes) -> list[Component]:
    """Parameters and state are divided; gradients are whole until they are summed."""
    return [*main_parts(sizes, (True, False, True)), Component(FRESH, "G", sizes.largest)]
