"""`hogwild`: all workers of a machine update one copy of the weights in shared memory, and never wait."""

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.reduction import Op
from shoal.events.spans import MAPPED
from shoal.strategies.buckets.buffer_sync import buffer_sync_of
from shoal.strategies.buckets.unused import refuse_unused
from shoal.strategies.guard import ROW
from shoal.strategies.onecopy.mapped_weights import check_maps_memory, map_parameters
from shoal.strategies.pieces.freed_memory import return_freed_memory
from shoal.strategies.replicas.initial_state import sync_initial_state
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.server.shards import buckets_of
from shoal.strategies.server.updates import clip_alone
from shoal.strategies.strategy import Share, StepResult, agreed_loss, part_of


@final
class Hogwild(Sync):
    """Phase 1, gradients of this worker's share. Phase 2, update the weights. (Niu et al. 2011.)

    ::

        rank 0   ── gradients ── update ── gradients ── update ──▶
                      ▲ read       │ write                           one θ in memory that all map
        rank 1   ────── gradients ── update ── gradients ──▶

    The model's parameters are θ itself: nothing is copied. No lock, no message, no barrier: a worker reads weights
    while others write them, and two updates of one element at the same time may lose one. Each worker has moments of
    its own, if the optimizer has any. Losses are divided by the samples of a whole step, so for SGD the updates of one
    step add up to one machine's.

    Workers meet to evaluate and to save, and again before the first step after that. A checkpoint has the weights, and
    rank 0's moments. Runs do not repeat. Costs a pass of the guard over the gradients, and the transfer of what other
    cores have written. Memory: weights once per machine, and gradients and optimizer state of each worker.
    """

    def __init__(self, parts: SyncParts, config: ServerConfig) -> None:
        super().__init__(parts)
        self._config = config
        group, layout = parts.group, parts.layout
        check_maps_memory(group, layout.params)
        sync_initial_state(group, layout.pieces())
        for bucket in buckets_of(layout.params):
            map_parameters(group, layout.params, bucket)
        return_freed_memory()  # where the parameters were
        group.barrier().wait()
        # As numpy arrays: operations on a few numbers take a tenth of torch's time, in every step.
        self._board = group.common(group.size * ROW, torch.float64).view(group.size, ROW).numpy()
        """All workers' rows for the guard: each writes its own after every step, and reads the others'."""
        self._own_row: memoryview[Any] = self._board[group.rank].data  # written in a third of numpy's time
        self._skipped = group.common(group.size, torch.int64).numpy()
        """The updates that each worker has left out because a number was not finite."""
        self._buffers = buffer_sync_of(group, layout.model)
        self._num_bytes = 2 * sum(param.nbytes for param in layout.params.values())
        """Bytes that a worker of a server pushes and pulls in a step."""
        self._finished = 0
        self._has_met = False
        """Whether other workers may still evaluate or save the weights as they are."""
        self._stop_at: int | None = None
        self._stop_signal = 0
        self._sees_stop = False
        """Whether any worker has reported a stop signal."""
        self._samples = [0, 0]
        """Samples of this worker's shares, and of all shares of the same steps."""

    def step(self, share: Share, lr: float) -> StepResult:
        """One update of the weights by this worker alone."""
        if self._has_met:
            self._group.barrier().wait()
        self._has_met = False
        self._group.beat()  # it may not communicate for a whole epoch
        loss = self._layout.gradients(share)
        row = self._measured(loss, share)
        if self._may_update(row, loss):
            with self._layout.span("update", "compute"):
                self._update.without_clipping(lr)
        else:
            self._skipped[self._group.rank] += 1
        self._group.note_transfer(MAPPED, self._num_bytes)
        self._finished += 1
        self._samples[0] += share.num_samples
        self._samples[1] += share.num_samples_global
        # The loss is a number already: a new tensor takes half the time of a product.
        own = loss.new_full((), row[0] * share.num_samples_global / max(1, share.num_samples))
        return StepResult(own, self._agreed_stop())

    def _measured(self, loss: Tensor, share: Share) -> list[float]:
        """This worker's row of the guard's table; its gradient is then clipped."""
        params = self._layout.params
        gradients = [gradient for param in params.values() if (gradient := param.grad) is not None]
        if len(gradients) < len(params) and share.num_samples and self._config.unused == "refuse":
            missing = [name for name, param in params.items() if param.grad is None]
            refuse_unused(self._group, missing, len(params))
        self._guard.look(*gradients)
        row = [*map(float, self._guard.row(loss, share))]
        clip_alone(gradients, row, self._update.clip_norm)
        return row

    def _may_update(self, row: list[float], loss: Tensor) -> bool:
        """Ask the guard; it raises if a number that is not finite ends the run."""
        rows: list[list[float]] = self._board.tolist()
        rows[self._group.rank] = row
        self._sees_stop = any(stop_signal for _, _, _, stop_signal in rows)
        may_update = self._guard.decide(rows, loss, is_alone=True).may_update
        # Others compare their gradients with this row, so a row that is not finite is not published.
        for index, number in enumerate(row if may_update else (0.0, 0.0, 0.0, row[3])):
            self._own_row[index] = number
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
        # A worker that waits for the others has ended its last step without a stop, so it makes one more.
        numbers = torch.tensor([self._finished if stops else self._finished + 1, signal])
        self._group.all_reduce(numbers, Op.MAX).wait()
        furthest, signal = numbers.tolist()
        if signal:
            self._stop_at, self._stop_signal = furthest, signal
        return bool(signal)

    def _wait_for_all(self) -> None:
        """Wait until every worker waits here."""
        while self._meet(stops=False):
            pass  # others have met this worker to agree on the last step

    def consolidate(self) -> None:
        """Wait until no worker updates any more; all take rank 0's buffers."""
        self._wait_for_all()
        self._has_met = True
        if self._buffers is not None:
            self._buffers.update()

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the model and the optimizer's state. All workers write the same weights, and none trains before."""
        super().load(saved)
        self._group.barrier().wait()

    def agree_on_loss(self, loss_sum: float) -> float:
        """The mean of the workers' sums, weighted by their numbers of samples."""
        self._wait_for_all()
        return agreed_loss(self._group, loss_sum, part_of(self._samples, self._group.size))

    def summary(self) -> dict[str, Any]:
        """The entries of the run's result. Staleness is not known: updates have no versions."""
        skipped = int(self._skipped.sum())
        return {
            "mode": "hogwild",
            "gathers": False,
            "repeats": False,
            "exact": False,
            "servers": 0,
            "updates": self._finished * self._group.size - skipped,
            "skipped": skipped,
        }
