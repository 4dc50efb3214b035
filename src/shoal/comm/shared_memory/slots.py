"""The slots of all members as tensors."""

import ctypes
from typing import final

import torch
from torch import Tensor

from shoal.comm.shared_memory.arena import Arena
from shoal.comm.shared_memory.board import NUM_SLOTS, ArenaLayout

MAX_KINDS = 256

_copy_bytes = ctypes.memmove


@final
class Slots:
    """Every member's slots in the arena, seen by `rank`."""

    def __init__(self, arena: Arena, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._memory = arena.memory
        self._layout = ArenaLayout(size)
        start = arena.memory.data_ptr()
        self._addresses = [start + self._layout.slot(rank, index) for index in range(NUM_SLOTS)]
        self._views: dict[tuple[torch.dtype, int, int], list[list[Tensor]]] = {}

    def put(self, part: Tensor, slot: int) -> None:
        """Copy a flat tensor into this member's own slot: as bytes, which takes half of `copy_`'s time."""
        _copy_bytes(self._addresses[slot], part.data_ptr(), part.nbytes)

    def views(self, dtype: torch.dtype, numel: int, slot: int) -> list[Tensor]:
        """Every member's slot as a tensor of that many elements; made once, then kept."""
        views = self._views.get((dtype, numel, 0))
        return (views or self._make(dtype, numel, 0))[slot]

    def my_rows(self, dtype: torch.dtype, numel: int, slot: int) -> list[Tensor]:
        """The row for this member in every member's slot, where a slot holds a row of `numel` for each member."""
        first = self.rank * numel
        views = self._views.get((dtype, numel, first))
        return (views or self._make(dtype, numel, first))[slot]

    def _make(self, dtype: torch.dtype, numel: int, first: int) -> list[list[Tensor]]:
        if len(self._views) >= MAX_KINDS:
            self._views.clear()
        width = dtype.itemsize
        views = [
            [
                self._memory[start + first * width : start + (first + numel) * width].view(dtype)
                for start in (self._layout.slot(rank, index) for rank in range(self.size))
            ]
            for index in range(NUM_SLOTS)
        ]
        self._views[dtype, numel, first] = views
        return views
