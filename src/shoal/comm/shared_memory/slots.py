"""The slots of all members as tensors."""

import ctypes
from typing import final

import torch
from torch import Tensor

from shoal.comm.shared_memory.arena import Arena
from shoal.comm.shared_memory.board import NUM_SLOTS, Layout

MAX_KINDS = 256


@final
class Slots:
    """Every member's slots in the arena, seen by `rank`."""

    def __init__(self, arena: Arena, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._memory = arena.memory
        self._layout = Layout(size)
        start = arena.memory.data_ptr()
        self._addresses = [start + self._layout.slot(rank, index) for index in range(NUM_SLOTS)]
        self._views: dict[tuple[torch.dtype, int], list[list[Tensor]]] = {}

    def put(self, part: Tensor, slot: int) -> None:
        """Copy a flat tensor into this member's own slot: as bytes, which takes a quarter of `copy_`'s time."""
        ctypes.memmove(self._addresses[slot], part.data_ptr(), part.nbytes)

    def views(self, dtype: torch.dtype, numel: int, slot: int) -> list[Tensor]:
        """Every member's slot as a tensor of that many elements; made once, then kept."""
        views = self._views.get((dtype, numel))
        if views is None:
            if len(self._views) >= MAX_KINDS:
                self._views.clear()
            memory, num_bytes = self._memory, numel * dtype.itemsize
            starts = [
                [self._layout.slot(rank, index) for rank in range(self.size)] for index in range(NUM_SLOTS)
            ]
            views = [[memory[start : start + num_bytes].view(dtype) for start in row] for row in starts]
            self._views[dtype, numel] = views
        return views[slot]
