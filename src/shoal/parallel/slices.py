"""Slices: the part of flat parameters that one worker owns and updates.

::

    bucket       |fc2.bias|fc2.weight········|fc1.bias|fc1.weight···········|
    owner        |········· rank 0 ··········|··········· rank 1 ···········|
    rank 0 has   fc2.bias, fc2.weight        rank 1 has   fc1.bias, fc1.weight

Every worker owns as many elements as any other, to within one, wherever the parameters begin. An owner's slices are
tensors of their own for the optimizer: state exists for what it owns and nothing else.
"""

from collections.abc import Collection, Sequence
from typing import final

from torch import Tensor

from shoal.comm.algorithms import chunk_bounds
from shoal.comm.group import Group
from shoal.events.spans import SpanRecorder
from shoal.parallel.buckets.bucket import Bucket
from shoal.parallel.layout.layout import Layout
from shoal.parallel.piece import Place


@final
class Slices:
    """One worker's slices of a layout's parameters, under the parameters' names: what its optimizer updates."""

    def __init__(self, layout: Layout, group: Group) -> None:
        self.params: dict[str, Tensor] = {}
        self.span: SpanRecorder = layout.span
        self.sharded_over: Sequence[Group] = (group, *layout.sharded_over)
        self.repeated: Collection[str] = layout.repeated
        self._group = group
        self._layout = layout
        self._starts: dict[str, int] = {}

    def add(self, bucket: Bucket, weights: Tensor, gradients: Tensor) -> slice:
        """Own a range of a bucket, given its weights and gradients as flat tensors; returns the range."""
        own = slice(*chunk_bounds(bucket.gradients.numel(), self._group.size, self._group.rank))
        offset = 0
        for name in bucket.names:
            numel = self._layout.params[name].numel()
            first, last = max(own.start, offset), min(own.stop, offset + numel)
            if first < last:
                self.params[name] = weights[first:last]
                self.params[name].grad = gradients[first:last]
                self._starts[name] = first - offset
            offset += numel
        return own

    def place_of(self, name: str) -> Place:
        """The range of the flattened parameter that this worker owns: no other worker of its group does."""
        return Place(tuple(self._layout.params[name].shape), self._starts[name])
