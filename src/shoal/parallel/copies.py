"""Keeps tensors equal to one worker's: many small ones as a few flat buffers."""

from collections.abc import Callable, Iterable, Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.parallel import buckets


@final
class Copies:
    """`update()` makes the tensors the root's on every worker: one broadcast for each dtype. Making it is a collective.

    For what no gradient keeps in step: running statistics and other buffers of a model.
    """

    def __init__(self, group: Group, tensors: Callable[[], Sequence[Tensor]]) -> None:
        """`tensors` gives them, the same number and shapes whenever it is asked: modules may assign new buffers."""
        self._group, self._tensors = group, tensors
        first = tensors()
        sizes = buckets.sizes_of(first)
        memory = buckets.Memory(group, sizes)
        whole = sum(tensor.nbytes for tensor in first) + 1
        self._flats: list[tuple[Tensor, list[Tensor], tuple[int, ...]]] = [
            (memory.flat(bucket), memory.views(bucket, first), bucket.params)
            for bucket in buckets.plan(sizes, range(len(sizes)), whole, whole)
        ]

    def update(self, root: int = 0) -> None:
        """Copy the root's tensors into everyone's.

        Autograd is not told that they change, as a graph may still hold them: backward through it again finds the new
        values.
        """
        everyone = self._tensors()
        with torch.no_grad():
            for flat, views, numbers in self._flats:
                originals = [everyone[number] for number in numbers]
                if self._group.rank == root:
                    torch._foreach_copy_(views, originals)  # pyright: ignore[reportPrivateUsage]
                self._group.broadcast(flat, root).wait()
                if self._group.rank != root:
                    with torch.autograd._unsafe_preserve_version_counter(tuple(originals)):  # pyright: ignore[reportPrivateUsage]
                        torch._foreach_copy_(originals, views)  # pyright: ignore[reportPrivateUsage]


def buffers_of(module: nn.Module, names: Iterable[str]) -> Callable[[], list[Tensor]]:
    """What gives a module's buffers of these names: where they are is looked up once, what is there each time."""
    split = [name.rpartition(".") for name in names]
    places = [(module.get_submodule(path)._buffers, name) for path, _, name in split]  # pyright: ignore[reportPrivateUsage]
    return lambda: [cast("Tensor", owner[name]) for owner, name in places]
