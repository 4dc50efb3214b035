"""`hogwild`: all workers of a machine update one copy of the weights in shared memory, and never wait."""

from collections.abc import Collection, Mapping
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.config.schema import ServerConfig
from shoal.parallel.buckets.buffer_sync import buffer_sync_of
from shoal.parallel.buckets.unused import refuse_unused
from shoal.parallel.guard import ROW
from shoal.parallel.layout.layout import Layout
from shoal.parallel.mapped_weights import check_maps_memory
from shoal.parallel.strategy import Share, StepResult
from shoal.parallel.sync.initial_state import sync_initial_state
from shoal.parallel.sync.own_losses import agreed_loss, part_of
from shoal.parallel.sync.server.clipping import clip_alone
from shoal.parallel.sync.server.shards import FlatCopy, buckets_of
from shoal.parallel.sync.sync import Sync, SyncParts


@final
class CommonWeights:
    """One copy of a layout's parameters in memory that all workers map: what their updates change."""

    def __init__(self, layout: Layout, group: Group, gradients: Mapping[str, Tensor]) -> None:
        """`gradients` are this worker's, under the parameters' names. A collective."""
        self.span, self.zero = layout.span, layout.zero
        self.sharded_over, self.repeated = layout.sharded_over, layout.repeated
        self.place_of, self.all_norms = layout.place_of, layout.all_norms
        self._group, self._gradients = group, gradients
        self._is_complete = False
        shared: dict[str, Tensor] = {}
        for bucket in buckets_of(layout.params):
            weights = group.common(bucket.flat.numel(), bucket.flat.dtype)
            shared |= zip(bucket.names, bucket.split(weights), strict=True)
        self._own = list(layout.params.values())
        self.params = {name: shared[name] for name in layout.params}
        self._shared = list(self.params.values())
        self.leave_out(())
        self.write()

    def leave_out(self, missing: Collection[str]) -> None:
        """Have the optimizer skip these parameters, which have no gradient, in the next update."""
        if missing or not self._is_complete:
            for name, weights in self.params.items():
                weights.grad = None if name in missing else self._gradients[name]
            self._is_complete = not missing

    @torch.no_grad()
    def read(self) -> None:
        """Make the layout's parameters the weights as they are now."""
        torch._foreach_copy_(self._own, self._shared)  # pyright: ignore[reportPrivateUsage]

    @torch.no_grad()
    def write(self) -> None:
        """Make the weights rank 0's parameters. A collective."""
        if self._group.rank == 0:
            torch._foreach_copy_(self._shared, self._own)  # pyright: ignore[reportPrivateUsage]
        self._group.barrier().wait()


@final
class Hogwild(Sync):
    """Phase 1, gradients of this worker's share. Phase 2, update the weights. Phase 3, read them. (Niu et al. 2011.)

    ::

        rank 0   ── gradients ── update, read ── gradients ── update, read ──▶
                                  │ ▲                                            one θ in memory that all map
        rank 1   ────── gradients ──── update, read ──── gradients ──▶

    No lock, no message, no barrier: a worker reads weights while others write them, and two updates of one element at
    the same time may lose one. Each worker has moments of its own, if the optimizer has any. Losses are divided by the
    samples of a whole step, so for SGD the updates of one step add up to one machine's.

    A worker reads θ once per step, just after it has written it, when θ is still in the caches of its core. If it
    computed with θ itself, every pass through the model would fetch what other cores have written meanwhile.

    Workers meet to evaluate and to save. A checkpoint has the weights, and rank 0's moments. Runs do not repeat.
    Costs no communication; memory: weights once per machine, and weights, gradients and optimizer state of each worker.
    """

    def __init__(self, parts: SyncParts, config: ServerConfig) -> None:
        super().__init__(parts)
        self._config = config
        group, layout = parts.group, parts.layout
        check_maps_memory(group, layout.params)
        sync_initial_state(group, layout.pieces())
        self._flat = FlatCopy(layout.params, 1, alone())
        self._common = CommonWeights(layout, group, self._flat.slots)
        self._update = parts.update.of(self._common)
        # As numpy arrays: operations on a few numbers take a tenth of torch's time, in every step.
        self._board = group.common(group.size * ROW, torch.float64).view(group.size, ROW).numpy()
        """All workers' rows for the guard: each writes its own after every step, and reads the others'."""
        self._buffers = buffer_sync_of(group, layout.model)
        self._finished = 0
        self._stop_at: int | None = None
        self._stop_signal = 0
        self._sees_stop = False
        """Whether any worker has reported a stop signal."""
        self._samples = [0, 0]
        """Samples of this worker's shares, and of all shares of the same steps."""

    def step(self, share: Share, lr: float) -> StepResult:
        """One update of the weights by this worker alone."""
        self._group.beat()  # it may not communicate for a whole epoch
        loss = self._layout.gradients(share)
        if self._may_update(loss, share):
            with self._layout.span("update", "compute"):
                self._update.without_clipping(lr)
        with self._layout.span("read", "move"):
            self._common.read()
        self._finished += 1
        self._samples[0] += share.num_samples
        self._samples[1] += share.num_samples_global
        own = loss * (share.num_samples_global / max(1, share.num_samples))
        return StepResult(own, self._agreed_stop())

    def _may_update(self, loss: Tensor, share: Share) -> bool:
        """Clip the gradient, and ask the guard; it raises if a number that is not finite ends the run."""
        missing = self._flat.take_gradients()
        if missing and share.num_samples and self._config.unused == "refuse":
            refuse_unused(self._group, missing, len(self._layout.params))
        self._common.leave_out(missing)
        for gradients in self._flat.flat_gradients:
            self._guard.look(gradients)
        rank = self._group.rank
        row = self._guard.row(loss, share)
        clip_alone(self._flat.flat_gradients, row[2], row[1], self._update.clip_norm)
        rows: list[list[float]] = self._board.tolist()
        rows[rank] = row
        self._sees_stop = any(stop_signal for _, _, _, stop_signal in rows)
        may_update = self._guard.permits(rows)
        # Others compare their gradients with this row, so one that is not finite is not published.
        self._board[rank] = row if may_update else (0.0, 0.0, 0.0, row[3])
        return may_update

    def _agreed_stop(self) -> int:
        """The stop signal, in the step after which all workers stop."""
        if self._stop_at is None and self._sees_stop:
            self._meet(stops=True)
        is_last = self._stop_at is not None and self._finished >= self._stop_at
        return self._stop_signal if is_last else 0

    def _meet(self, stops: bool) -> bool:
        """Meet all workers, once to agree on the last step if one of them has a stop signal; whether that was it."""
        signal = int(self._board[:, 3].max()) if stops else 0
        numbers = torch.tensor([self._finished, signal])
        self._group.all_reduce(numbers, Op.MAX).wait()
        furthest, signal = numbers.tolist()
        if signal:
            self._stop_at, self._stop_signal = furthest, signal
        return bool(signal)

    def consolidate(self) -> None:
        """Wait until no worker updates any more; all take rank 0's buffers."""
        while self._meet(stops=False):
            pass  # others have met this worker to agree on the last step
        self._common.read()
        if self._buffers is not None:
            self._buffers.update()

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the model and the optimizer's state; rank 0 writes the weights for all."""
        super().load(saved)
        self._common.write()

    def agree_on_loss(self, loss_sum: float) -> float:
        """The mean of the workers' sums, weighted by their numbers of samples."""
        return agreed_loss(self._group, loss_sum, part_of(self._samples, self._group.size))

    def summary(self) -> dict[str, Any]:
        """What the run's result says about this strategy. Staleness is not known: nothing counts updates."""
        return {
            "mode": "hogwild",
            "gathers": False,
            "servers": 0,
            "updates": self._finished * self._group.size,
        }
