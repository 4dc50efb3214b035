"""`dp`: what `nn.DataParallel` does with the GPUs of one process, done by workers.

Rank 0 has the data, the loss and the optimizer. The others lend it their processors: they run the model forward and
backward on the pieces that it scatters, and know neither labels nor loss. It is the first way in which data
parallelism was offered, and the one to read in order to see what `ddp` leaves out: a worker that everything passes
through.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.comm.signature import DTYPES
from shoal.config.schema import DpConfig
from shoal.data.dataset import Batch
from shoal.parallel.buckets.buffer_sync import BufferSync
from shoal.parallel.buckets.plan import Memory
from shoal.parallel.guard import Guard
from shoal.parallel.layout.whole import Whole
from shoal.parallel.piece import Piece
from shoal.parallel.step import accumulate, backward_from
from shoal.parallel.strategy import Share, StepResult, Strategy, Sums
from shoal.parallel.sync.sync import SyncParts

MAX_DIMS = 8
"""Most dimensions of an input, that of the samples included."""
NO_LABELS = torch.empty(0)
"""What the others know of the labels."""


@final
class Dp(Strategy):
    """One step, in the order in which it happens; phases 1 to 5 once for every part of the batch.

    Phase 1, scatter: rank 0 cuts the inputs into stretches and sends each worker one.
    Phase 2, forward: every worker, on its stretch.
    Phase 3, gather: rank 0 joins the outputs, and computes the loss of the whole part.
    Phase 4, scatter: rank 0 sends each worker the gradient of its outputs.
    Phase 5, backward: every worker, from that gradient on.
    Phase 6, reduce: the parameters' gradients are summed on rank 0.
    Phase 7, update: rank 0 clips and steps; nobody else has an optimizer's state.
    Phase 8, broadcast: everyone gets rank 0's weights and buffers, for the next step and for evaluation.

    The loss is computed as on one machine, over a whole part; gradients are one machine's but for the order of their
    sums. Stretches are those of `torch.chunk`: all of one length but the last, which may be shorter; where there are
    few samples the last workers get none.

    Costs, with w workers, P bytes of parameters, X and Y bytes of a batch's inputs and outputs: through rank 0's link
    go (X + 2Y)·(w − 1)/w for the pieces, and P in and P out, times as many members as the group's reduce and broadcast
    have it talk to; where `ddp` sends 2P·(w − 1)/w over everyone's. While rank 0 computes the loss and updates, all
    others wait; while they compute the forward pass, so does it, with no more than its own stretch.

    What differs from one machine: with batch norm each worker normalises by its own stretch, and rank 0's running
    statistics are the ones that count, as under `nn.DataParallel`.
    """

    data_rank = 0
    data_size = 1

    def __init__(self, parts: SyncParts, config: DpConfig) -> None:
        del config
        assert isinstance(parts.layout, Whole)  # the table of strategies allows no other
        self._layout = parts.layout
        self._update = parts.update
        self._guard = parts.guard
        self._group = self.copies = group = (
            parts.group
        )  # since the last broadcast each has a copy of the model
        self._sums = _SumsOnRank0(group, self._layout.params)
        state = dict([*self._layout.model.named_parameters(), *self._layout.model.named_buffers()])
        self._state = BufferSync(group, lambda: state)
        self._state.update()
        self._compute = self._layout.conditions(self._lead_part if group.rank == 0 else self._follow_part)

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch. Only rank 0 takes the share's parts; to the others they are never made."""
        for param in self._layout.params.values():
            param.grad = None
        loss = self._lead(share) if self._group.rank == 0 else self._follow()
        with self._layout.span("reduce", "move"):
            self._sums.reduce(self._guard)
            # The whole batch is rank 0's, also to the guard.
            samples = share.num_samples if self._group.rank == 0 else 0
            verdict = self._guard.agree(loss, replace(share, num_samples=samples))
        if verdict.may_update and self._group.rank == 0:
            self._update(lr)
        with self._layout.span("broadcast", "move"):
            self._state.update()
        return StepResult(verdict.loss, verdict.stop_signal)

    def _lead(self, share: Share) -> Tensor:
        """Phases 1 to 5 on rank 0, for all parts; the mean loss of the batch."""
        loss = accumulate(self._compute, share, self._layout.zero)
        with self._layout.span("scatter", "move"):
            self._announce(None)
        return loss

    def _lead_part(self, batch: Batch, scale: float) -> Tensor:
        """Phases 1 to 5 on rank 0; the sum of the losses."""
        group, layout, span = self._group, self._layout, self._layout.span
        plan = _Plan(tuple(batch.inputs.shape), batch.inputs.dtype)
        mine = plan.rows(0, group.size)
        with span("scatter", "move"):
            self._announce(plan)
            _finish(group.send(piece, rank) for rank, piece in plan.others(batch.inputs, group.size))
        with span("forward", "compute"), layout.autocast(batch.inputs.device.type):
            outputs = layout.model(batch.inputs[mine])
        with span("gather", "move"):
            # The outputs end their graph here: on the other side of the loss each worker takes up its own again.
            joined = outputs.new_empty(len(batch.inputs), *outputs.shape[1:], requires_grad=False)
            joined[mine] = outputs.detach()
            _finish(group.recv(piece, rank) for rank, piece in plan.others(joined, group.size))
        with span("loss", "compute"), layout.autocast(batch.inputs.device.type):
            joined.requires_grad_()
            loss_sum = layout.loss(joined, batch.labels)
            (gradient,) = torch.autograd.grad(loss_sum * scale, joined)
        with span("scatter", "move"):
            _finish(group.send(piece, rank) for rank, piece in plan.others(gradient, group.size))
        with span("backward", "compute"):
            backward_from(outputs, gradient[mine])
        return loss_sum.detach()

    def _follow(self) -> Tensor:
        """Phases 1 to 5 on the others, until rank 0 has no more parts; their loss is nothing."""
        group, zero = self._group, self._layout.zero
        while True:
            with self._layout.span("scatter", "move"):
                plan = self._hear()
                if plan is None:
                    return zero
                mine = plan.rows(group.rank, group.size)
                inputs = plan.empty(mine.stop - mine.start, zero.device)
                if not len(inputs):
                    continue
                group.recv(inputs, 0).wait()
            self._compute(Batch(inputs, NO_LABELS, len(inputs)), 1.0)

    def _follow_part(self, batch: Batch, scale: float) -> Tensor:
        """Phases 2 to 5 on the others. `scale` is 1: what rank 0 sends is scaled."""
        group, layout, span = self._group, self._layout, self._layout.span
        with span("forward", "compute"), layout.autocast(batch.inputs.device.type):
            outputs = layout.model(batch.inputs)
        with span("gather", "move"):
            group.send(outputs.detach(), 0).wait()
        with span("scatter", "move"):
            gradient = torch.empty_like(outputs, requires_grad=False)
            group.recv(gradient, 0).wait()
        with span("backward", "compute"):
            backward_from(outputs, gradient * scale)
        return layout.zero

    def _announce(self, plan: "_Plan | None") -> None:
        header = plan.encoded() if plan else torch.zeros(2 + MAX_DIMS, dtype=torch.int64)
        self._group.broadcast(header).wait()

    def _hear(self) -> "_Plan | None":
        header = torch.empty(2 + MAX_DIMS, dtype=torch.int64)
        self._group.broadcast(header).wait()
        return _Plan.decoded(header)

    def evaluate(self, batch: Batch) -> Sums:
        """Loss and hits on a batch: since the last broadcast every worker has the whole model."""
        return self._layout.evaluate(batch)

    def pieces(self) -> list[Piece]:
        """The whole state on rank 0; on the others the model alone, for they have no optimizer."""
        return self._layout.pieces() + (self._update.pieces() if self._group.rank == 0 else [])

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load what this worker uses: rank 0 all of it, the others the model."""
        self._layout.load(saved)
        if self._group.rank == 0:
            self._update.load(saved)


class _Plan(NamedTuple):
    """What rank 0 tells before it scatters: the form of all inputs together. Who gets which follows from it.

    >>> plan = _Plan((7, 1, 28, 28), torch.float32)
    >>> [plan.rows(rank, 3) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
    >>> _Plan.decoded(plan.encoded()) == plan
    True
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    def rows(self, rank: int, size: int) -> slice:
        """The stretch of one worker."""
        samples = self.shape[0]
        each = -(-samples // size)
        return slice(min(rank * each, samples), min((rank + 1) * each, samples))

    def others(self, whole: Tensor, size: int) -> list[tuple[int, Tensor]]:
        """The other workers, each with its stretch of a tensor with a row for each sample; who has none is left out."""
        pieces = [(rank, whole[self.rows(rank, size)]) for rank in range(1, size)]
        return [(rank, piece) for rank, piece in pieces if len(piece)]

    def empty(self, samples: int, device: torch.device) -> Tensor:
        """Room for so many samples."""
        return torch.empty(samples, *self.shape[1:], dtype=self.dtype, device=device)

    def encoded(self) -> Tensor:
        """As numbers: of how many dimensions, of what kind, how long each; all 0 is the end."""
        lengths = [*self.shape, *[0] * (MAX_DIMS - len(self.shape))]
        return torch.tensor([len(self.shape), DTYPES.index(self.dtype), *lengths])

    @classmethod
    def decoded(cls, header: Tensor) -> "_Plan | None":
        """The plan; None for the end."""
        dims, dtype, *lengths = header.tolist()
        return cls(tuple(lengths[:dims]), DTYPES[dtype]) if dims else None


class _SumsOnRank0:
    """Phase 6: all gradients side by side in memory of the group, so that what is summed together moves at once."""

    def __init__(self, group: Group, params: Mapping[str, Tensor]) -> None:
        self._group = group
        self._params = list(params.values())
        # A parameter that no sample reached keeps no gradient, as on one machine: a flag for each tells, and is summed.
        flags = self._params[0].new_empty(len(params))
        buckets = Memory(group, {**params, "flags": flags}).cut()
        self._flats = [bucket.flat for bucket in buckets]
        views = {
            name: view for bucket in buckets for name, view in zip(bucket.names, bucket.views, strict=True)
        }
        self._views, self._flags = [views[name] for name in params], views["flags"]

    def reduce(self, guard: Guard) -> None:
        """Make rank 0's gradients the sums of all workers'; each worker's own are shown to the guard first."""
        present = [param.grad is not None for param in self._params]
        for param, view in zip(self._params, self._views, strict=True):
            view.zero_() if param.grad is None else view.copy_(param.grad)
        self._flags.zero_()
        for flat in self._flats:
            guard.look(flat)
        self._flags.copy_(torch.tensor(present))
        for flat in self._flats:
            self._group.reduce(flat).wait()
        if self._group.rank == 0:
            for param, view, flag in zip(self._params, self._views, self._flags.tolist(), strict=True):
                param.grad = view if flag else None


def _finish(works: Iterable[Work]) -> None:
    """Start all, then wait for all."""
    for work in list(works):
        work.wait()
