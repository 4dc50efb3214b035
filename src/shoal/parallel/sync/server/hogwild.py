"""`hogwild`: all workers of a machine update one copy of the weights in shared memory, and never wait."""

from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.reduction import Op
from shoal.config.schema import ServerConfig
from shoal.parallel.buckets.buffer_sync import buffer_sync_of
from shoal.parallel.buckets.unused import refuse_unused
from shoal.parallel.freed_memory import return_freed_memory
from shoal.parallel.guard import ROW
from shoal.parallel.mapped_weights import check_maps_memory
from shoal.parallel.strategy import Share, StepResult
from shoal.parallel.sync.initial_state import sync_initial_state
from shoal.parallel.sync.own_losses import agreed_loss, part_of
from shoal.parallel.sync.server.clipping import clip_alone
from shoal.parallel.sync.server.shards import buckets_of
from shoal.parallel.sync.sync import Sync, SyncParts


@final
class Hogwild(Sync):
    """Phase 1, gradients of this worker's share. Phase 2, update the weights. (Niu, Recht, Ré, Wright 2011.)

    ::

        rank 0   ── gradients ── update ── gradients ── update ──▶
                          │ read     │ write                          one θ in memory that all map
        rank 1   ──── gradients ──── update ──── gradients ──▶

    No lock, no message, no barrier: a worker reads weights while others write them, and two updates of one element at
    the same time may lose one. Each worker has moments of its own, if the optimizer has any. Losses are divided by the
    samples of a whole step, so for SGD the updates of one step add up to one machine's.

    Workers meet to evaluate and to save. A checkpoint has the weights, and rank 0's moments. Runs do not repeat.
    Costs no communication; memory: weights once per machine, gradients and optimizer state for each worker.
    """

    def __init__(self, parts: SyncParts, config: ServerConfig) -> None:
        super().__init__(parts)
        self._config = config
        group, layout = parts.group, parts.layout
        check_maps_memory(group, layout.params)
        sync_initial_state(group, layout.pieces())
        for bucket in buckets_of(layout.params):
            weights = group.common(bucket.flat.numel(), bucket.flat.dtype)
            for name, view in zip(bucket.names, bucket.split(weights), strict=True):
                if group.rank == 0:
                    view.copy_(layout.params[name].detach())
                layout.params[name].data = view
        return_freed_memory()  # where the parameters were
        # As numpy arrays: operations on a few numbers take a tenth of torch's time, in every step.
        self._board = group.common(group.size * ROW, torch.float64).view(group.size, ROW).numpy()
        """All workers' rows for the guard: each writes its own after every step, and reads the others'."""
        self._row = torch.zeros((group.size, ROW), dtype=torch.float64)
        self._buffers = buffer_sync_of(group, layout.model)
        self._finished = 0
        self._stop_at: int | None = None
        self._stop_signal = 0
        self._samples = [0, 0]
        """Samples of this worker's shares, and of all shares of the same steps."""
        group.barrier().wait()

    def step(self, share: Share, lr: float) -> StepResult:
        """One update of the weights by this worker alone."""
        self._group.beat()  # it may not communicate for a whole epoch
        loss = self._layout.gradients(share)
        if self._may_update(loss, share):
            with self._layout.span("update", "compute"):
                self._update.without_clipping(lr)
        self._finished += 1
        self._samples[0] += share.num_samples
        self._samples[1] += share.num_samples_global
        own = loss * (share.num_samples_global / max(1, share.num_samples))
        return StepResult(own, self._agreed_stop())

    def _may_update(self, loss: Tensor, share: Share) -> bool:
        """Clip the gradient, and ask the guard; it raises if a number that is not finite ends the run."""
        params = self._layout.params
        missing = [name for name, param in params.items() if param.grad is None]
        if missing and share.num_samples and self._config.unused == "refuse":
            refuse_unused(self._group, missing, len(params))
        grads = [param.grad for param in params.values() if param.grad is not None]
        for grad in grads:
            self._guard.look(grad)
        rank = self._group.rank
        self._guard.write(self._row, loss, share)
        row: list[float] = self._row.numpy()[rank].tolist()
        clip_alone(grads, row[2], row[1], self._update.clip_norm)
        rows: list[list[float]] = self._board.tolist()
        rows[rank] = row
        verdict = self._guard.decide(rows, loss)
        # Others compare their gradients with this one: one that is not finite is its own worker's affair.
        self._board[rank] = row if verdict.may_update else (0.0, 0.0, 0.0, row[3])
        return verdict.may_update

    def _agreed_stop(self) -> int:
        """The stop signal, in the step after which all workers stop."""
        if self._stop_at is None and bool(self._board[:, 3].any()):
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
        if self._buffers is not None:
            self._buffers.update()

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
