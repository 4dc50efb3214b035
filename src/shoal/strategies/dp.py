"""`dp`: the algorithm of `nn.DataParallel`, with workers in place of the GPUs of one process.

Rank 0 holds the data, the loss and the optimizer. The other workers run the model forward and backward on the pieces
that rank 0 scatters; they have neither labels nor loss. Compare it with `ddp`, which has no worker that all data passes
through.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.comm.signature import DTYPES
from shoal.data.dataset import Batch
from shoal.strategies.buckets.buffer_sync import BufferSync
from shoal.strategies.buckets.gradient_slots import copy_gradients
from shoal.strategies.buckets.plan import Memory
from shoal.strategies.gradient_engine import accumulate, backward_from
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.settings import DpConfig
from shoal.strategies.strategy import Share, StepResult, Strategy, Sums

MAX_DIMS = 8
"""Largest number of dimensions of an input, including the samples."""
NO_LABELS = torch.empty(0)
"""The labels of a batch on the other workers: they have none."""


@final
class Dp(Strategy):
    """One step; phases 1 to 5 run once for every part of the batch.

    Phase 1, scatter: rank 0 splits the inputs and sends each worker its slice.
    Phase 2, forward: every worker, on its slice.
    Phase 3, gather: rank 0 receives all outputs and computes the loss of the part.
    Phase 4, scatter: rank 0 sends each worker the gradient of its outputs.
    Phase 5, backward: every worker, from that gradient.
    Phase 6, reduce: the parameters' gradients are summed on rank 0.
    Phase 7, update: rank 0 clips and steps; the other workers have no optimizer state.
    Phase 8, broadcast: all workers receive rank 0's weights and buffers, for the next step and for evaluation.

    The loss is computed over a whole part, as on one machine; gradients equal one machine's up to the order of their
    sums. Slices are those of `torch.chunk`: all of one length except the last, which may be shorter; with few samples
    the last workers get none.

    Costs, with w workers, P bytes of parameters, X and Y bytes of a batch's inputs and outputs: rank 0's link carries
    (X + 2Y)·(w − 1)/w for the slices, and P in and P out for each member that the group's reduce and broadcast connect
    it to; `ddp` sends 2P·(w − 1)/w over each worker's link. The other workers wait while rank 0 computes the loss and
    updates.

    Differs from one machine with batch norm: each worker normalises with the statistics of its slice, and rank 0's
    running statistics are kept, as in `nn.DataParallel`.
    """

    data_rank = 0
    data_size = 1

    def __init__(self, parts: SyncParts, config: DpConfig) -> None:
        del config
        assert isinstance(parts.layout, Whole)  # STRATEGIES has no other pair
        self._layout = parts.layout
        self._update = parts.update
        self._guard = parts.guard
        self._group = self.copies = group = parts.group  # after a broadcast each worker has the whole model
        self._sums = _SumsOnRank0(group, self._layout.params)
        state = dict([*self._layout.model.named_parameters(), *self._layout.model.named_buffers()])
        self._state = BufferSync(group, lambda: state)
        self._state.update()
        self._compute = self._layout.conditions(self._lead_part if group.rank == 0 else self._follow_part)

    def step(self, share: Share, lr: float) -> StepResult:
        """One update on one batch. Only rank 0 iterates over the share's parts."""
        for param in self._layout.params.values():
            param.grad = None
        loss = self._lead(share) if self._group.rank == 0 else self._follow()
        with self._layout.span("reduce", "move"):
            self._sums.reduce(self._guard)
            # For the guard, rank 0 has all samples of the batch.
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
            # The graph is cut here: backward continues in each worker from the gradient of its outputs.
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
        """Phases 1 to 5 on the other workers, until rank 0 has no more parts; returns a loss of 0."""
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
        """Phases 2 to 5 on the other workers. `scale` is 1: rank 0 has scaled the gradient that it sends."""
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
        """Loss, correct predictions and metrics on a batch; after a broadcast every worker has the whole model."""
        return self._layout.evaluate(batch)

    def pieces(self) -> list[Piece]:
        """The whole state on rank 0; the model alone on the others, which have no optimizer."""
        return self._layout.pieces() + (self._update.pieces() if self._group.rank == 0 else [])

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the state: on rank 0 all of it, on the others the model."""
        self._layout.load(saved)
        if self._group.rank == 0:
            self._update.load(saved)


class _Plan(NamedTuple):
    """The header that rank 0 broadcasts before it scatters: shape and dtype of all inputs. It determines the slices.

    >>> plan = _Plan((7, 1, 28, 28), torch.float32)
    >>> [plan.rows(rank, 3) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
    >>> _Plan.decoded(plan.encoded()) == plan
    True
    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    def rows(self, rank: int, size: int) -> slice:
        """The slice of one worker."""
        samples = self.shape[0]
        each = -(-samples // size)
        return slice(min(rank * each, samples), min((rank + 1) * each, samples))

    def others(self, whole: Tensor, size: int) -> list[tuple[int, Tensor]]:
        """The other workers that have samples, each with its slice of a tensor with one row per sample."""
        pieces = [(rank, whole[self.rows(rank, size)]) for rank in range(1, size)]
        return [(rank, piece) for rank, piece in pieces if len(piece)]

    def empty(self, samples: int, device: torch.device) -> Tensor:
        """An uninitialised tensor for `samples` samples."""
        return torch.empty(samples, *self.shape[1:], dtype=self.dtype, device=device)

    def encoded(self) -> Tensor:
        """As integers: number of dimensions, index of the dtype, lengths. All zeros mark the end."""
        lengths = [*self.shape, *[0] * (MAX_DIMS - len(self.shape))]
        return torch.tensor([len(self.shape), DTYPES.index(self.dtype), *lengths])

    @classmethod
    def decoded(cls, header: Tensor) -> "_Plan | None":
        """The plan; None for the end."""
        dims, dtype, *lengths = header.tolist()
        return cls(tuple(lengths[:dims]), DTYPES[dtype]) if dims else None


class _SumsOnRank0:
    """Phase 6: all gradients in flat buckets of the group's memory, so that each reduce moves one bucket."""

    def __init__(self, group: Group, params: Mapping[str, Tensor]) -> None:
        self._group = group
        self._params = params
        # A parameter without a gradient on every worker keeps none, as on one machine: the sum of flags shows which.
        flags = next(iter(params.values())).new_empty(len(params))
        buckets = Memory(group, {**params, "flags": flags}).cut()
        self._flats = [bucket.flat for bucket in buckets]
        views = {
            name: view for bucket in buckets for name, view in zip(bucket.names, bucket.views, strict=True)
        }
        self._views, self._flags = [views[name] for name in params], views["flags"]

    def reduce(self, guard: Guard) -> None:
        """Sum the gradients of all workers on rank 0; the guard first measures each worker's gradient."""
        absent = copy_gradients(self._params, self._views)
        self._flags.zero_()
        guard.look(*self._flats)
        self._flags.copy_(torch.tensor([name not in absent for name in self._params]))
        for flat in self._flats:
            self._group.reduce(flat).wait()
        if self._group.rank == 0:
            for param, view, flag in zip(
                self._params.values(), self._views, self._flags.tolist(), strict=True
            ):
                param.grad = view if flag else None


def _finish(works: Iterable[Work]) -> None:
    """Start all, then wait for all."""
    for work in list(works):
        work.wait()
