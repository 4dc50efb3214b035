"""The weights divided among servers: each holds an equal range of the flat parameters, and updates it.

::

    flat        |conv1.weight|conv1.bias|fc1.weight···················|fc1.bias|fc2.weight·····|
    server 0    |························|·····|
    server 1                                    |······|······················|
    server 2                                                                  |················|

Ranges are equal to within a chunk (`norms.py`), wherever parameters begin: a large layer does not make one server
slow. Workers and servers compute the same ranges from the parameters alone.

Where all ranks map each other's memory, gradients and weights are not sent: a server reads a worker's gradients where
the worker has written them, and writes its weights where the worker reads them. A worker touches neither between its
request and the reply.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self, final

import torch
from torch import Tensor

from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.comm.reduction import Op, tree_reduce
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.gradient_slots import ABSENT, sparse_gradient
from shoal.strategies.buckets.plan import Memory
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.slices import Slices, boundary
from shoal.strategies.pieces.state import read_part
from shoal.strategies.update import Update, Updated


def buckets_of(params: Mapping[str, Tensor], group: Group | None = None) -> list[Bucket]:
    """Flat memory for all parameters, one bucket for each dtype; each parameter is contiguous from here on.

    With a group it is memory that all its members map, and this is a collective.
    """
    for param in params.values():
        if not param.is_contiguous():
            param.data = param.data.contiguous()
    return Memory(group or alone(), params).cut()


class MappedCopies(NamedTuple):
    """A worker's gradients and weights in memory that the servers map, too. Making it is a collective of the world."""

    gradients: list[Bucket]
    weights: list[Bucket]
    all_gradients: list[list[Tensor]]
    """For each bucket, the gradients of every rank."""
    all_weights: list[list[Tensor]]

    @classmethod
    def of(cls, world: Group, params: Mapping[str, Tensor]) -> Self:
        """Memory for these parameters on every rank; a server does not touch its own, so that takes no memory."""
        gradients, weights = buckets_of(params, world), buckets_of(params, world)
        views = [[world.views_of_all(bucket.flat) for bucket in buckets] for buckets in (gradients, weights)]
        return cls(gradients, weights, *views)


def range_of(bucket: Bucket, server: int, servers: int) -> slice:
    """The range of a bucket that one of the servers holds."""
    numels = [extent.stop - extent.start for extent, _ in bucket.extents]
    return slice(*(boundary(numels, servers, owner) for owner in (server, server + 1)))


@final
class FlatCopy:
    """A worker's gradients and weights as flat ranges, one list of them for each server."""

    def __init__(self, params: Mapping[str, Tensor], servers: int, world: Group) -> None:
        self._params = params
        self.is_mapped = world.maps_memory
        """Whether the servers read and write here, so that nothing is sent."""
        if self.is_mapped:
            gradients, weights, *_ = MappedCopies.of(world, params)
        else:
            gradients, weights = buckets_of(params), buckets_of(params)
        slots = _views_by_name(gradients)
        self.slots = {name: slots[name] for name in params}
        """The flat gradients in the parameters' shapes, under their names."""
        received = _views_by_name(weights)
        self._weights = [received[name] for name in params]
        self.gradients = [_ranges(gradients, server, servers) for server in range(servers)]
        self.weights = [_ranges(weights, server, servers) for server in range(servers)]
        self.buckets = gradients
        """All gradients, one bucket for each dtype."""
        self.flat_gradients = [bucket.flat for bucket in gradients]
        self.num_bytes = sum(part.nbytes for parts in self.gradients for part in parts)
        """Bytes of the gradients, and as many of the weights."""

    def take_gradients(self) -> list[str]:
        """Copy the gradients into flat memory, −0 where there is none; the names of parameters without one."""
        missing: list[str] = []
        slots, gradients = list[Tensor](), list[Tensor]()
        for (name, slot), param in zip(self.slots.items(), self._params.values(), strict=True):
            gradient = param.grad
            if gradient is None:
                missing.append(name)
                slot.fill_(ABSENT)
            else:
                if gradient.layout is not torch.strided:
                    raise sparse_gradient(name)
                slots.append(slot)
                gradients.append(gradient)
        if slots:
            torch._foreach_copy_(slots, gradients)  # pyright: ignore[reportPrivateUsage]
        return missing

    @torch.no_grad()
    def set_weights(self) -> None:
        """Copy the weights that were received into the parameters."""
        torch._foreach_copy_(list(self._params.values()), self._weights)  # pyright: ignore[reportPrivateUsage]


@final
class Shard:
    """One server's slices of the weights, their optimizer, and memory for the gradients of every worker.

    Memory of a server, with n elements of its range: 4n bytes of weights and 4n of gradients, the optimizer's state,
    and 4n for each worker where delays are compensated, or the pushes of a step gathered and not mapped.
    """

    def __init__(
        self,
        layout: Updated,
        update: Update,
        group: Group,
        workers: int,
        gathers: bool,
        world: Group | None = None,
        decodes: bool = False,
    ) -> None:
        """`group` has the servers; `world` all ranks, if they may map each other's memory.

        If the server `decodes` pushes, they are messages all the same, and what they stand for is in its own memory.
        """
        self._mapped = (
            MappedCopies.of(world, layout.params) if world is not None and world.maps_memory else None
        )
        self.buckets = buckets = buckets_of(layout.params)
        # Of these flat tensors only this server's range is ever touched, so only that takes memory.
        weights = [torch.empty_like(bucket.flat) for bucket in buckets]
        self._slices = Slices(layout, group)
        for bucket, flat in zip(buckets, weights, strict=True):
            self._slices.add(bucket, flat, bucket.flat)
        self.weights = _cut(weights, buckets, group.rank, group.size)
        self.gradients = _cut([bucket.flat for bucket in buckets], buckets, group.rank, group.size)
        """What the next update uses."""
        self._rows = [
            [torch.empty_like(each) for each in self.gradients] for _ in range(workers if gathers else 1)
        ]
        self._outboxes: list[list[Tensor]] = []
        """Where workers read weights, if that memory is mapped."""
        if self._mapped is not None:

            def of_worker(views: Sequence[Sequence[Tensor]], rank: int) -> list[Tensor]:
                return _cut([ranks[rank] for ranks in views], buckets, group.rank, group.size)

            if not decodes:
                self._rows = [of_worker(self._mapped.all_gradients, rank) for rank in range(workers)]
            self._outboxes = [of_worker(self._mapped.all_weights, rank) for rank in range(workers)]
        self._discarded: list[Tensor] | None = None
        take_initial_weights(self._slices, layout)
        self.update = update.over(self._slices)

    def receive(self, world: Group, rank: int, rows: Sequence[Tensor]) -> None:
        """Receive the gradients of a push, unless they can be read where the worker has them."""
        if self._mapped is None:
            for work in [world.recv(row, rank) for row in rows if row.numel()]:
                work.wait()

    def payload(self, rank: int) -> Sequence[Tensor]:
        """The weights to send to a worker; none if they can be written where it reads them, which this does."""
        if not self._outboxes:
            return self.weights
        for outbox, weights in zip(self._outboxes[rank], self.weights, strict=True):
            outbox.copy_(weights)
        return ()

    def row(self, rank: int) -> list[Tensor]:
        """Memory for a worker's gradients: its own where they are gathered."""
        return self._rows[rank if len(self._rows) > 1 else 0]

    def discarded(self) -> list[Tensor]:
        """Memory for gradients that are not used."""
        if self._discarded is None:
            self._discarded = [torch.empty_like(each) for each in self.gradients]
        return self._discarded

    def rows_of(self, ranks: Sequence[int]) -> list[list[Tensor]]:
        """For each dtype, the gradients of these workers."""
        return [[self.row(rank)[index] for rank in ranks] for index in range(len(self.gradients))]

    def sum_rows(self, ranks: Sequence[int]) -> None:
        """Make the gradients the sum over these workers, along the balanced tree over ranks."""
        for rows, out in zip(self.rows_of(ranks), self.gradients, strict=True):
            tree_reduce(Op.SUM, rows, out)

    def pieces(self) -> list[Piece]:
        """The optimizer's state; the workers hold the weights."""
        return self.update.pieces()

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load this server's slices of weights and of the optimizer's state."""
        load_slices(self._slices, saved)
        self.update.load(saved)


def take_initial_weights(slices: Slices, layout: Updated) -> None:
    """Copy the parameters of a layout into the slices."""
    for name, owned in slices.params.items():
        owned.copy_(slices.place_of(name).read(layout.params[name].detach(), tuple(owned.shape)))


def load_slices(slices: Updated, saved: Mapping[str, Tensor]) -> None:
    """Load the parts of saved weights that the slices hold."""
    for name, owned in slices.params.items():
        owned.copy_(read_part(name, saved[f"model.{name}"], slices.place_of(name), owned))


def _views_by_name(buckets: Sequence[Bucket]) -> dict[str, Tensor]:
    return {name: view for bucket in buckets for name, view in zip(bucket.names, bucket.views, strict=True)}


def _ranges(buckets: Sequence[Bucket], server: int, servers: int) -> list[Tensor]:
    return _cut([bucket.flat for bucket in buckets], buckets, server, servers)


def _cut(flats: Sequence[Tensor], buckets: Sequence[Bucket], server: int, servers: int) -> list[Tensor]:
    return [flat[range_of(bucket, server, servers)] for flat, bucket in zip(flats, buckets, strict=True)]
