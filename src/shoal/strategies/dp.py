"""`dp`: the algorithm of `nn.DataParallel`, with workers in place of the GPUs of one process.

Rank 0 holds the data, the loss and the optimizer. The other workers run the model forward and backward on the pieces
that rank 0 scatters; they have neither labels nor loss. Compare it with `ddp`, which has no worker that all data passes
through.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Work
from shoal.comm.signature import DTYPES
from shoal.data.dataset import Batch
from shoal.errors import ConfigError
from shoal.strategies.buckets.buffer_sync import BufferSync
from shoal.strategies.buckets.gradient_slots import copy_gradients
from shoal.strategies.buckets.plan import Memory
from shoal.strategies.gradient_engine import accumulate, backward_from
from shoal.strategies.layout.whole import Whole
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.settings import DpConfig
from shoal.strategies.strategy import Share, StepResult, Strategy, Sums

MOST_DIMS = 8
FORM_NUMEL = 2 + MOST_DIMS
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
        self._slots = self._gradient_slots()
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
            self._reduce()
            # For the guard, rank 0 has all samples of the batch.
            samples = share.num_samples if self._group.rank == 0 else 0
            verdict = self._guard.agree(loss, replace(share, num_samples=samples))
        if verdict.may_update and self._group.rank == 0:
            self._update(lr, scale=verdict.scale)
        with self._layout.span("broadcast", "move"):
            self._state.update()
        return StepResult(verdict.loss, verdict.stop_signal)

    def _lead(self, share: Share) -> Tensor:
        """Phases 1 to 5 on rank 0, for all parts; the mean loss of the batch."""
        loss = accumulate(self._compute, share, self._layout.zero)
        with self._layout.span("scatter", "move"):
            self._group.broadcast(torch.zeros(FORM_NUMEL, dtype=torch.int64)).wait()  # the end
        return loss

    def _lead_part(self, batch: Batch, scale: float) -> Tensor:
        """Phases 1 to 5 on rank 0; the sum of the losses."""
        group, layout, span = self._group, self._layout, self._layout.span
        with span("scatter", "move"):
            group.broadcast(form_of(batch.inputs)).wait()
            mine, *others = batch.inputs.chunk(group.size)
            _finish(group.send(piece, rank) for rank, piece in enumerate(others, start=1))
        with span("forward", "compute"), layout.autocast(batch.device.type):
            outputs = layout.model(mine)
        with span("gather", "move"):
            # The graph is cut here: backward continues in each worker from the gradient of its outputs.
            joined = outputs.new_empty(len(batch.inputs), *outputs.shape[1:], requires_grad=False)
            first, *others = joined.chunk(group.size)
            first.copy_(outputs.detach())
            _finish(group.recv(piece, rank) for rank, piece in enumerate(others, start=1))
        with span("loss", "compute"), layout.autocast(batch.device.type):
            joined.requires_grad_()
            loss_sum = layout.loss(joined, batch.labels)
            (gradient,) = torch.autograd.grad(loss_sum * scale, joined)
        with span("scatter", "move"):
            own, *others = gradient.chunk(group.size)
            _finish(group.send(piece, rank) for rank, piece in enumerate(others, start=1))
        with span("backward", "compute"):
            backward_from(outputs, own)
        return loss_sum.detach()

    def _follow(self) -> Tensor:
        """Phases 1 to 5 on the other workers, until rank 0 has no more parts; returns a loss of 0."""
        group, zero = self._group, self._layout.zero
        while True:
            with self._layout.span("scatter", "move"):
                form = torch.empty(FORM_NUMEL, dtype=torch.int64)
                group.broadcast(form).wait()
                if not form.any():
                    return zero
                slices = empty_of(form, torch.device("meta")).chunk(group.size)
                if group.rank >= len(slices):
                    continue
                inputs = torch.empty_like(slices[group.rank], device=zero.device)
                group.recv(inputs, 0).wait()
            self._compute(Batch(inputs, NO_LABELS, len(inputs)), 1.0)

    def _follow_part(self, batch: Batch, scale: float) -> Tensor:
        """Phases 2 to 5 on the other workers. `scale` is 1: rank 0 has scaled the gradient that it sends."""
        group, layout, span = self._group, self._layout, self._layout.span
        with span("forward", "compute"), layout.autocast(batch.device.type):
            outputs = layout.model(batch.inputs)
        with span("gather", "move"):
            group.send(outputs.detach(), 0).wait()
        with span("scatter", "move"):
            gradient = torch.empty_like(outputs, requires_grad=False)
            group.recv(gradient, 0).wait()
        with span("backward", "compute"):
            backward_from(outputs, gradient * scale)
        return layout.zero

    def _gradient_slots(self) -> list[Tensor]:
        """A slot in flat memory of the group for each gradient, so that each reduce moves one bucket of them.

        A parameter without a gradient on every worker keeps none, as on one machine: the last slot has a flag for each
        parameter, and their sums show which.
        """
        params = self._layout.params
        flags = next(iter(params.values())).new_empty(len(params))
        buckets = Memory(self._group, {**params, "flags": flags}).cut()
        self._flats = [bucket.flat for bucket in buckets]
        slots = {
            name: view for bucket in buckets for name, view in zip(bucket.names, bucket.views, strict=True)
        }
        return [slots[name] for name in (*params, "flags")]

    def _reduce(self) -> None:
        """Phase 6: sum the gradients of all workers on rank 0; the guard first measures each worker's gradient."""
        params, (*slots, flags) = self._layout.params, self._slots
        absent = copy_gradients(params, slots)
        flags.zero_()
        self._guard.look(*self._flats)
        flags.copy_(torch.tensor([name not in absent for name in params]))
        for flat in self._flats:
            self._group.reduce(flat).wait()
        if self._group.rank == 0:
            for param, slot, flag in zip(params.values(), slots, flags.tolist(), strict=True):
                param.grad = slot if flag else None

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


def _finish(works: Iterable[Work]) -> None:
    """Start all, then wait for all."""
    for work in list(works):
        work.wait()


def form_of(tensor: Tensor) -> Tensor:
    """The dtype and shape of samples as `FORM_NUMEL` numbers, of which the first is above 0."""
    if tensor.dim() > MOST_DIMS:
        raise ConfigError(
            f"samples have {tensor.dim() - 1} dimensions; at most {MOST_DIMS - 1} are supported"
        )
    padding = [0] * (MOST_DIMS - tensor.dim())
    return torch.tensor([1 + DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape, *padding])


def empty_of(form: Tensor, device: torch.device) -> Tensor:
    """An uninitialised tensor of that form."""
    kind, dims, *lengths = form.tolist()
    return torch.empty(lengths[:dims], dtype=DTYPES[kind - 1], device=device)
