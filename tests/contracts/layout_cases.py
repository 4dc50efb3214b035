"""Small layouts and a sync of other kinds than ours, to prove that the seams carry them.

`Striped` divides every parameter by rows, `TwoStages` divides the model by layers, `Served` keeps the optimizer on a
worker that serves the others.
"""

import json

import torch
from strategy_cases import BUCKETS, OPTIMIZERS, Copy, copy_of, made, network
from torch import nn

from shoal import optim
from shoal.comm.alone import alone
from shoal.comm.mesh import Mesh
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.gradient_engine import accumulate, evaluate_batch
from shoal.strategies.layout.layout import Layout
from shoal.strategies.pieces.piece import Piece, Place
from shoal.strategies.replicas.sync import Sync
from shoal.strategies.strategy import Pause, StepResult, Strategy, Sums
from shoal.strategies.update import Update


def no_hook(param, callback):
    """Gradients here are whole only when `gradients` returns."""
    return lambda: None


def seeded(seed=0):
    draw = torch.Generator().manual_seed(seed)
    model = network().double()
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=draw, dtype=torch.float64))
    return model


class Striped(Layout):
    """Each member of a group holds some rows of every parameter; all compute the same share on gathered parameters."""

    def __init__(self, group, replica):
        whole = copy_of(seeded(), OPTIMIZERS["gd"]).layout
        self._whole, self._group, self._replica = whole, group, replica
        self.model, self.span, self.zero = nn.Identity(), whole.span, whole.zero
        self.on_final, self.sharded_over = no_hook, (group,)
        self.params = {
            name: self._rows(param, group.rank).detach().clone().requires_grad_()
            for name, param in whole.params.items()
        }

    def _bounds(self, param, rank):
        rows, size = len(param), self._group.size
        return rank * rows // size, (rank + 1) * rows // size

    def _rows(self, param, rank):
        first, last = self._bounds(param, rank)
        return param[first:last]

    @torch.no_grad()
    def _gather(self):
        for name, param in self._whole.params.items():
            for rank in range(self._group.size):
                rows = self._rows(param, rank)
                if rank == self._group.rank:
                    rows.copy_(self.params[name])
                received = rows.clone()
                self._group.broadcast(received, rank).wait()
                rows.copy_(received)

    def gradients(self, share, before_last=None):
        self._gather()
        if before_last is not None:
            before_last()
        loss = self._whole.gradients(share)
        for name, param in self.params.items():
            grad = self._whole.params[name].grad
            param.grad = None if grad is None else self._rows(grad, self._group.rank).clone()
        return loss if self._group.rank == 0 else self.zero

    def evaluate(self, batch):
        self._gather()
        return self._whole.evaluate(batch)

    def place_of(self, name):
        param = self._whole.params[name]
        first, _ = self._bounds(param, self._group.rank)
        return Place(tuple(param.shape), (first,) + (0,) * (param.dim() - 1), self._replica)

    def pieces(self):
        return [
            Piece(f"model.{name}", param.detach(), self.place_of(name)) for name, param in self.params.items()
        ]

    @torch.no_grad()
    def load(self, saved):
        for name, param in self.params.items():
            param.copy_(self.place_of(name).read(saved[f"model.{name}"], tuple(param.shape)))


class TwoStages(Layout):
    """The first worker of a pair has the first layer, the second one the rest."""

    def __init__(self, group, replica):
        whole = seeded()
        self._group, self._replica, self._is_first = group, replica, group.rank == 0
        self.model = whole[:2] if self._is_first else whole[2:]
        named = dict(whole.named_parameters())
        mine = {id(param) for param in self.model.parameters()}
        self.params = {name: param for name, param in named.items() if id(param) in mine}
        self.span = SpanRecorder(HostClock())
        self.zero = torch.zeros((), dtype=torch.float64)
        self.on_final, self.sharded_over = no_hook, (group,)

    def gradients(self, share, before_last=None):
        for param in self.params.values():
            param.grad = None
        if before_last is not None:
            before_last()
        compute = self._first_part if self._is_first else self._last_part
        return accumulate(compute, share, self.zero)

    def _first_part(self, batch, scale):
        outputs = self.model(batch.inputs)
        self._group.send(outputs.detach(), 1).wait()
        gradient = torch.empty_like(outputs)
        self._group.recv(gradient, 1).wait()
        outputs.backward(gradient)
        return self.zero

    def _last_part(self, batch, scale):
        inputs = torch.empty(batch.num_samples, 8, dtype=torch.float64)
        self._group.recv(inputs, 0).wait()
        inputs.requires_grad_()
        loss = nn.functional.cross_entropy(self.model(inputs), batch.labels, reduction="sum")
        (loss * scale).backward()
        self._group.send(inputs.grad, 0).wait()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, batch):
        numbers = torch.zeros(2, dtype=torch.float64)
        if self._is_first:
            self._group.send(self.model(batch.inputs), 1).wait()
        else:
            inputs = torch.empty(batch.num_samples, 8, dtype=torch.float64)
            self._group.recv(inputs, 0).wait()
            found = evaluate_batch(self.model, _loss, Batch(inputs, batch.labels, batch.num_samples))
            numbers[0], numbers[1] = found.loss, found.correct
        self._group.broadcast(numbers, root=1).wait()
        return Sums(numbers[0], numbers[1], batch.num_samples, batch.num_samples)

    def place_of(self, name):
        return Place.whole(self.params[name], self._replica)

    def pieces(self):
        return [
            Piece.whole(f"model.{name}", param.detach(), self._replica) for name, param in self.params.items()
        ]

    @torch.no_grad()
    def load(self, saved):
        for name, param in self.params.items():
            param.copy_(saved[f"model.{name}"])


def _loss(outputs, labels):
    return nn.functional.cross_entropy(outputs, labels, reduction="sum")


STEP, PAUSE = 0.0, 1.0


class Served(Strategy):
    """The last worker holds weights and optimizer and serves; the others send gradients and receive weights."""

    def __init__(self, copy, world):
        self._layout, self._update, self._world = copy.layout, copy.update, world
        self._server = world.size - 1
        self.serves = world.rank == self._server
        trainers = range(self._server)
        self.copies = world.split([self._server] if self.serves else list(trainers))
        self.data_rank, self.data_size = (0, 1) if self.serves else (world.rank, self._server)

    def step(self, share, lr):
        loss = self._layout.gradients(share)
        header = torch.tensor([STEP, lr, loss.item(), share.stop_signal], dtype=torch.float64)
        self._world.send(header, self._server).wait()
        self._world.send(self._flat(grads=True), self._server).wait()
        answer, weights = torch.empty(2, dtype=torch.float64), self._flat()
        self._world.recv(answer, self._server).wait()
        self._world.recv(weights, self._server).wait()
        self._take(weights)
        return StepResult(answer[0], int(answer[1]))

    def serve(self, serving):
        trainers = range(self._server)
        while True:
            headers = torch.empty(self._server, 4, dtype=torch.float64)
            for rank in trainers:
                self._world.recv(headers[rank], rank).wait()
            if headers[0, 0] == PAUSE:
                text = torch.empty(int(headers[0, 1]), dtype=torch.uint8)
                self._world.recv(text, 0).wait()
                return Pause(json.loads(bytes(text.tolist())), bool(headers[0, 2]))
            total = torch.zeros_like(self._flat())
            for rank in trainers:
                pushed = torch.empty_like(total)
                self._world.recv(pushed, rank).wait()
                total += pushed
            self._take(total, grads=True)
            self._update(headers[0, 1].item())
            answer = torch.stack([headers[:, 2].sum(), headers[:, 3].max()])
            for rank in trainers:
                self._world.send(answer, rank).wait()
                self._world.send(self._flat(), rank).wait()

    def pause(self, pause):
        text = json.dumps(pause.progress).encode()
        header = torch.tensor([PAUSE, len(text), pause.is_end, 0], dtype=torch.float64)
        self._world.send(header, self._server).wait()
        if self._world.rank == 0:
            self._world.send(torch.tensor(list(text), dtype=torch.uint8), self._server).wait()

    def _flat(self, grads=False):
        tensors = [param.grad if grads else param.detach() for param in self._layout.params.values()]
        params = self._layout.params.values()
        return torch.cat(
            [
                (torch.zeros_like(param) if tensor is None else tensor).reshape(-1)
                for tensor, param in zip(tensors, params, strict=True)
            ]
        )

    @torch.no_grad()
    def _take(self, flat, grads=False):
        params = list(self._layout.params.values())
        for param, part in zip(params, flat.split([param.numel() for param in params]), strict=True):
            if grads:
                param.grad = part.view(param.shape).clone()
            else:
                param.copy_(part.view(param.shape))

    def evaluate(self, batch):
        return self._layout.evaluate(batch)

    def pieces(self):
        return self._layout.pieces() + (self._update.pieces() if self.serves else [])

    def load(self, saved):
        self._layout.load(saved)
        if self.serves:
            self._update.load(saved)


SIZES = {
    "Striped": lambda workers: workers if workers % 2 or workers == 2 else 2,
    "TwoStages": lambda workers: 2,
}
"""How many workers divide one copy of the model."""


def laid_out(layout, axis, optimizer, clip_norm=None):
    """A strategy of a test layout over an axis of two or more, and `ddp` over the data axis if there is one."""

    def build(world):
        along = SIZES[layout.__name__](world.size)
        mesh = Mesh(world, {"data": world.size // along, axis: along})
        data = mesh.axis("data") if world.size > along else None
        mine = layout(mesh.axis(axis), data.rank if data else 0)
        copy = Copy(mine, Update(mine, lambda params: optim.build(optimizer, params), clip_norm))
        if data is None:
            return made(lambda parts, config: Sync(parts), None, copy, alone())
        return made(Ddp, BUCKETS, copy, data)

    return build


def served(optimizer):
    def build(world):
        replica = 0 if world.rank == world.size - 1 else 1
        return Served(copy_of(seeded(), optimizer, replica=replica), world)

    return build
