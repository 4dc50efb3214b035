"""Slices: the part of flat parameters that one worker owns and updates.

::

    bucket       |fc2.bias|fc2.weight········|fc1.bias|fc1.weight···········|
    owner        |········· rank 0 ··········|··········· rank 1 ···········|
    rank 0 has   fc2.bias, fc2.weight        rank 1 has   fc1.bias, fc1.weight

Every worker owns as many elements as any other, to within a chunk (`norms.py`), wherever the parameters begin. An
owner's slices are tensors of their own for the optimizer: state exists for what it owns and nothing else.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.events.spans import SpanRecorder
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.norms import CHUNK, num_chunks
from shoal.strategies.pieces.piece import Place
from shoal.strategies.update import Updated


def boundary(numels: Iterable[int], size: int, owner: int) -> int:
    """The first element that an owner of parameters of these sizes has, one after the other: one where a chunk begins.

    >>> [boundary([10, 5000, 10], 2, owner) for owner in range(3)]
    [0, 2058, 5020]
    """
    sizes = list(numels)
    ideal, offset = sum(sizes) * owner // size, 0
    for numel in sizes:
        if ideal < offset + numel:
            nearest = (ideal - offset + CHUNK // 2) // CHUNK * CHUNK
            return offset + min(nearest, numel)
        offset += numel
    return offset


@final
class Slices:
    """One worker's slices of a layout's parameters, under the parameters' names: what its optimizer updates."""

    def __init__(self, layout: Updated, group: Group) -> None:
        self.params: dict[str, Tensor] = {}
        self.span: SpanRecorder = layout.span
        self.sharded_over: Sequence[Group] = layout.sharded_over
        self.repeated: Collection[str] = layout.repeated
        self.zero = layout.zero
        self._group = group
        self._layout = layout
        self.starts: dict[str, int] = {}

    def add(self, bucket: Bucket, weights: Tensor, gradients: Tensor) -> slice:
        """Own a range of a bucket, given its weights and gradients as flat tensors; returns the range."""
        numels = {name: self._layout.params[name].numel() for name in bucket.names}
        size, rank = self._group.size, self._group.rank
        own = slice(*(boundary(numels.values(), size, owner) for owner in (rank, rank + 1)))
        offset = 0
        for name, numel in numels.items():
            first, last = max(own.start, offset), min(own.stop, offset + numel)
            if first < last:
                self.own(name, first - offset, weights[first:last], gradients[first:last])
            offset += numel
        return own

    def own(self, name: str, start: int, weights: Tensor, gradients: Tensor) -> None:
        """Own a range of one flattened parameter, given its weights and gradients; it starts where a chunk does."""
        self.params[name] = weights
        self.params[name].grad = gradients
        self.starts[name] = start

    def all_norms(self, norms: Mapping[str, Tensor]) -> Tensor:
        """All workers' norms of their chunks, in the order of the parameters."""
        layout, first = self._layout, dict[str, int]()
        total = 0
        for name, param in layout.params.items():
            if name not in layout.repeated:
                first[name] = total
                total += num_chunks(param.numel())
        # In the widest dtype of the parameters, as one worker's norms one after the other would be.
        widest = reduce(torch.promote_types, (param.dtype for param in layout.params.values())).to_real()
        # Of each chunk one worker knows the norm, and adding zeros does not change it.
        table = layout.zero.new_zeros(total, dtype=widest)
        for name, found in norms.items():
            start = first[name] + self.starts[name] // CHUNK
            table[start : start + len(found)] = found
        self._group.all_reduce(table).wait()
        return table

    def place_of(self, name: str) -> Place:
        """The range of the layout's part of a parameter that this worker owns: no other worker of its group does.

        Another worker of the same replica may hold the same part; it then saves the range.
        """
        layout = self._layout
        part = layout.place_of(name).range_of(tuple(layout.params[name].shape), self.starts[name])
        return replace(part, replica=int(name in layout.repeated))
