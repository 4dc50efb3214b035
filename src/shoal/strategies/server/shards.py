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
from functools import partial
from typing import final

import torch
from torch import Tensor

from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.comm.reduction import Op, tree_reduce
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.gradient_slots import copy_gradients
from shoal.strategies.buckets.plan import Memory
from shoal.strategies.pieces.slices import Slices, boundary
from shoal.strategies.update import Update, Updated


def buckets_of(params: Mapping[str, Tensor], group: Group | None = None) -> list[Bucket]:
    """Flat memory for all parameters, one bucket for each dtype; each parameter is contiguous from here on.

    With a group it is memory that all its members map, and this is a collective.
    """
    for param in params.values():
        param.data = param.data.contiguous()
    return Memory(group or alone(), params).cut()


def mapped_buckets(params: Mapping[str, Tensor], world: Group) -> tuple[list[Bucket], list[list[Tensor]]]:
    """Memory for these parameters that all ranks map, on every rank; and for each bucket the memory of all ranks.

    A collective. A server does not touch its own, so that takes no memory.
    """
    buckets = buckets_of(params, world)
    return buckets, [world.views_of_all(bucket.flat) for bucket in buckets]


def range_of(bucket: Bucket, server: int, servers: int) -> slice:
    """The range of a bucket that one of the servers holds."""
    numels = [extent.stop - extent.start for extent, _ in bucket.extents]
    return slice(*(boundary(numels, servers, owner) for owner in (server, server + 1)))


@final
class FlatCopy:
    """A worker's gradients and weights as flat ranges, one list of them for each server."""

    def __init__(self, params: Mapping[str, Tensor], servers: int, world: Group) -> None:
        self.is_mapped = world.maps_memory
        """Whether the servers read and write here, so that nothing is sent."""
        gradients, weights = (
            mapped_buckets(params, world)[0] if self.is_mapped else buckets_of(params) for _ in range(2)
        )
        self.take_gradients = partial(copy_gradients, params, _views(gradients, params))
        """Copy the gradients here, −0 where there is none; the names of parameters without one."""
        self.views = _views(weights, params)
        """The weights that were received, in the parameters' shapes and order."""
        self.buckets = gradients
        """All gradients, one bucket for each dtype."""
        self.flat_gradients = [bucket.flat for bucket in gradients]
        flat_weights = [bucket.flat for bucket in weights]
        self.gradients = [_cut(self.flat_gradients, gradients, server, servers) for server in range(servers)]
        self.weights = [_cut(flat_weights, weights, server, servers) for server in range(servers)]
        self.num_bytes = sum(part.nbytes for parts in self.gradients for part in parts)
        """Bytes of the gradients, and as many of the weights."""


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

        If the server `decodes` pushes, they are messages also on one machine, and it decodes them to its own memory.
        """
        all_gradients, all_weights = list[list[Tensor]](), list[list[Tensor]]()
        if world is not None and world.maps_memory:
            all_gradients, all_weights = (mapped_buckets(layout.params, world)[1] for _ in range(2))
        self._is_mapped = bool(all_gradients)
        self.buckets = buckets = buckets_of(layout.params)
        # Of these flat tensors only this server's range is ever touched, so only that takes memory.
        weights = [torch.empty_like(bucket.flat) for bucket in buckets]
        self.slices = Slices(layout, group)
        for bucket, flat in zip(buckets, weights, strict=True):
            self.slices.add(bucket, flat, bucket.flat)
        self.weights = _cut(weights, buckets, group.rank, group.size)
        self.gradients = _cut([bucket.flat for bucket in buckets], buckets, group.rank, group.size)
        """The gradients of the next update."""

        def of_workers(views: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
            flats = ([ranks[rank] for ranks in views] for rank in range(workers))
            return [_cut(of_one, buckets, group.rank, group.size) for of_one in flats]

        if self._is_mapped and not decodes:
            self._rows = of_workers(all_gradients)
        else:
            own = range(workers if gathers else 1)
            self._rows = [[torch.empty_like(each) for each in self.gradients] for _ in own]
        self._outboxes = of_workers(all_weights) if self._is_mapped else []
        """Where workers read weights, if that memory is mapped."""
        self._discarded: list[Tensor] | None = None
        for name, owned in self.slices.params.items():
            place = self.slices.place_of(name)
            owned.copy_(place.read(layout.params[name].detach(), tuple(owned.shape)))
        self.update = update.over(self.slices)

    def receive(self, world: Group, rank: int, rows: Sequence[Tensor]) -> None:
        """Receive the gradients of a push, unless they can be read where the worker has them."""
        if not self._is_mapped:
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


def _views(buckets: Sequence[Bucket], params: Mapping[str, Tensor]) -> list[Tensor]:
    """The flat memory in the parameters' shapes and order."""
    views = {name: view for bucket in buckets for name, view in zip(bucket.names, bucket.views, strict=True)}
    return [views[name] for name in params]


def _cut(flats: Sequence[Tensor], buckets: Sequence[Bucket], server: int, servers: int) -> list[Tensor]:
    return [flat[range_of(bucket, server, servers)] for flat, bucket in zip(flats, buckets, strict=True)]
