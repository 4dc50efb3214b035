"""`hogwild`: all workers of a machine update one copy of the weights in shared memory, and never wait."""

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.reduction import Op
from shoal.config.schema import ServerConfig
from shoal.parallel.buckets.buffer_sync import buffer_sync_of
from shoal.parallel.buckets.unused import refuse_unused
from shoal.parallel.guard import ROW
from shoal.parallel.mapped_weights import check_maps_memory
from shoal.parallel.strategy import Share, StepResult
from shoal.parallel.sync.initial_state import sync_initial_state
from shoal.parallel.sync.own_losses import agreed_loss, part_of
from shoal.parallel.sync.server.clipping import clip_alone
from shoal.parallel.sync.server.common_weights import CommonWeights
from shoal.parallel.sync.sync import Sync, SyncParts


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

    Workers meet to evaluate and to save. A checkpoint has the weights, and rank 0's moments. Runs do not repeat.
    Costs a copy of the weights per step (`CommonWeights`), and a pass of the guard over the gradients. Memory: weights
    once per machine, and weights, gradients and optimizer state of each worker.
    """

    def __init__(self, parts: SyncParts, config: ServerConfig) -> None:
        super().__init__(parts)
        self._config = config
        group, layout = parts.group, parts.layout
        check_maps_memory(group, layout.params)
        sync_initial_state(group, layout.pieces())
        self._common = CommonWeights(layout, group)
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
        self._common.drop_gradients()
        with self._layout.span("read", "move"):
            self._common.read()
        self._finished += 1
        self._samples[0] += share.num_samples
        self._samples[1] += share.num_samples_global
        own = loss * (share.num_samples_global / max(1, share.num_samples))
        return StepResult(own, self._agreed_stop())

    def _may_update(self, loss: Tensor, share: Share) -> bool:
        """Clip the gradient, and ask the guard; it raises if a number that is not finite ends the run."""
        missing = self._common.take_gradients()
        if missing and share.num_samples and self._config.unused == "refuse":
            refuse_unused(self._group, missing, len(self._layout.params))
        gradients, rank = self._common.gradients, self._group.rank
        row = self._guard.row(loss, share, gradients)
        clip_alone(gradients, row[2], row[1], self._update.clip_norm)
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
