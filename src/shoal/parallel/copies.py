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
        originals = [*tensors]
        self._originals = originals
        sizes = buckets.sizes_of(originals)
        memory = buckets.Memory(group, sizes)
        whole = sum(original.nbytes for original in originals) + 1
        self._flats: list[tuple[Tensor, list[Tensor], tuple[int, ...]]] = [
            (memory.flat(bucket), memory.views(bucket, originals), bucket.params)
            for bucket in buckets.plan(sizes, range(len(sizes)), whole, whole)
        ]

    def update(self, root: int = 0, tensors: Iterable[Tensor] | None = None) -> None:
        """Copy the root's tensors into everyone's.

        `tensors` are those that have taken the place of the first ones: modules may assign new buffers. Autograd is
        not told that they change, as a graph may still hold them: backward through it again finds the new values.
        """
        everyone = self._originals if tensors is None else [*tensors]
        with torch.no_grad():
            for flat, views, numbers in self._flats:
                originals = [everyone[number] for number in numbers]
                if self._group.rank == root:
                    torch._foreach_copy_(views, originals)  # pyright: ignore[reportPrivateUsage]
                self._group.broadcast(flat, root).wait()
                if self._group.rank != root:
                    with torch.autograd._unsafe_preserve_version_counter(tuple(originals)):  # pyright: ignore[reportPrivateUsage]
                        torch._foreach_copy_(originals, views)  # pyright: ignore[reportPrivateUsage]
