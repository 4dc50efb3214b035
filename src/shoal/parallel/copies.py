"""Keeps tensors equal to one worker's: many small ones as a few flat buffers."""

from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.parallel import buckets


@final
class Copies:
    """`update()` makes the tensors the root's on every worker: one broadcast for each dtype. Making it is a collective.

    For what no gradient keeps in step: running statistics and other buffers of a model.
    """

    def __init__(self, group: Group, tensors: Iterable[Tensor]) -> None:
        self._group = group
        originals = [tensor.detach() for tensor in tensors]
        sizes = buckets.sizes_of(originals)
        memory = buckets.Memory(group, sizes)
        whole = sum(original.nbytes for original in originals) + 1
        self._flats: list[tuple[Tensor, list[Tensor], list[Tensor]]] = [
            (
                memory.flat(bucket),
                memory.views(bucket, originals),
                [originals[number] for number in bucket.params],
            )
            for bucket in buckets.plan(sizes, range(len(sizes)), whole, whole)
        ]

    def update(self, root: int = 0) -> None:
        """Copy the root's tensors into everyone's."""
        for flat, views, originals in self._flats:
            if self._group.rank == root:
                torch._foreach_copy_(views, originals)  # pyright: ignore[reportPrivateUsage]
            self._group.broadcast(flat, root).wait()
            if self._group.rank != root:
                torch._foreach_copy_(originals, views)  # pyright: ignore[reportPrivateUsage]
