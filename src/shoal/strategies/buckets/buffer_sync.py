"""Keep tensors equal to one worker's: many small ones in one flat buffer."""

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import cast, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group

_Views = dict[torch.dtype, tuple[list[str], list[Tensor]]]
"""For each dtype the names of tensors, and their views of flat memory."""


@final
class BufferSync:
    """`update()` copies the root's tensors to every worker: one broadcast per device. Constructing is a collective.

    For state that gradients do not keep equal: running statistics and other buffers of a model.
    """

    def __init__(self, group: Group, tensors: Callable[[], Mapping[str, Tensor]]) -> None:
        """`tensors` returns the tensors of the moment, with the same names and shapes on all workers."""
        self._group, self._tensors = group, tensors
        first = tensors()
        self._kinds = _kinds(first)
        self._flats = _flats(first, group.empty)

    def update(self, root: int = 0) -> None:
        """Copy the root's tensors to every worker.

        Autograd does not notice: a graph may still hold the tensors, and a second backward through it uses the new
        values.
        """
        tensors = self._tensors()
        if (kinds := _kinds(tensors)) != self._kinds:
            # Memory of the group would stay until the group ends.
            self._kinds = kinds
            self._flats = _flats(tensors, lambda numel, kind, on: torch.empty(numel, dtype=kind, device=on))
        is_root = self._group.rank == root
        with torch.no_grad():
            for memory, views in self._flats:
                originals = [([tensors[name] for name in names], theirs) for names, theirs in views.values()]
                if is_root:
                    for ours, theirs in originals:
                        torch._foreach_copy_(theirs, ours)  # pyright: ignore[reportPrivateUsage]
                self._group.broadcast(memory, root).wait()
                if not is_root:
                    for ours, theirs in originals:
                        with torch.autograd._unsafe_preserve_version_counter(tuple(ours)):  # pyright: ignore[reportPrivateUsage]
                            torch._foreach_copy_(ours, theirs)  # pyright: ignore[reportPrivateUsage]


def _kinds(tensors: Mapping[str, Tensor]) -> list[tuple[str, torch.Size, torch.dtype, torch.device]]:
    """What decides the places of tensors in memory."""
    return [(name, tensor.shape, tensor.dtype, tensor.device) for name, tensor in tensors.items()]


def _flats(
    tensors: Mapping[str, Tensor], empty: Callable[[int, torch.dtype, torch.device], Tensor]
) -> list[tuple[Tensor, _Views]]:
    """Memory for each device's tensors, made with `empty`.

    The largest elements are first, so that each is at a multiple of its size.
    """
    flats: list[tuple[Tensor, _Views]] = []
    by_device = sorted(tensors.items(), key=lambda named: (str(named[1].device), -named[1].itemsize))
    for device, group in groupby(by_device, key=lambda named: named[1].device):
        here = list(group)
        memory, views_of = empty(sum(tensor.nbytes for _, tensor in here), torch.uint8, device), _Views()
        start = 0
        for name, tensor in here:
            names, views = views_of.setdefault(tensor.dtype, ([], []))
            names.append(name)
            views.append(memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape))
            start += tensor.nbytes
        flats.append((memory, views_of))
    return flats


def buffer_sync_of(group: Group, module: nn.Module) -> BufferSync | None:
    """For all buffers of a module, whose owners it finds once; None if it has none."""
    split = {name: name.rpartition(".") for name, _ in module.named_buffers()}
    owners = {name: (module.get_submodule(path)._buffers, last) for name, (path, _, last) in split.items()}  # pyright: ignore[reportPrivateUsage]
    if not owners:
        return None
    return BufferSync(
        group,
        lambda: {name: cast("Tensor", buffers[last]) for name, (buffers, last) in owners.items()},
    )
