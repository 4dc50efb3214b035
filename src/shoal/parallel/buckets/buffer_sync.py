"""Keep tensors equal to one worker's: many small ones in a few flat buffers."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.parallel.buckets.plan import Memory


@final
class BufferSync:
    """`update()` copies the root's tensors to every worker: one broadcast for each dtype. Constructing is a collective.

    For state that gradients do not keep equal: running statistics and other buffers of a model.
    """

    def __init__(self, group: Group, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        """`tensors` returns them, always with the same names and shapes: modules may assign new ones."""
        self._group, self._tensors = group, tensors
        self._buckets = [(bucket, bucket.views) for bucket in Memory(group, tensors()).cut()]

    def update(self, root: int = 0) -> None:
        """Copy the root's tensors to every worker.

        Autograd does not notice: a graph may still hold the tensors, and a second backward through it uses the new
        values.
        """
        tensors = self._tensors()
        with torch.no_grad():
            for bucket, views in self._buckets:
                originals = [tensors[name] for name in bucket.names]
                if self._group.rank == root:
                    torch._foreach_copy_(views, originals)  # pyright: ignore[reportPrivateUsage]
                self._group.broadcast(bucket.flat, root).wait()
                if self._group.rank != root:
                    with torch.autograd._unsafe_preserve_version_counter(tuple(originals)):  # pyright: ignore[reportPrivateUsage]
                        torch._foreach_copy_(originals, views)  # pyright: ignore[reportPrivateUsage]


def buffer_sync_of(group: Group, module: nn.Module) -> BufferSync | None:
    """For all buffers of a module; None if it has none."""
    names = [name for name, _ in module.named_buffers()]
    return BufferSync(group, buffers_of(module, names)) if names else None


def buffers_of(module: nn.Module, names: Iterable[str]) -> Callable[[], dict[str, Tensor]]:
    """A function that returns a module's buffers of these names; it finds their owners once."""
    split = {name: name.rpartition(".") for name in names}
    owners = {name: (module.get_submodule(path)._buffers, last) for name, (path, _, last) in split.items()}  # pyright: ignore[reportPrivateUsage]
    return lambda: {name: cast("Tensor", buffers[last]) for name, (buffers, last) in owners.items()}
