"""Memory from `empty()`: which of it a tensor lies in, and the same place in another member's part."""

from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.arena import Arena

ELSEWHERE = -1
"""The place of a tensor that does not lie in memory from `empty()`."""

_OFFSET_BITS = 40


class Region(NamedTuple):
    """One `empty()`: every member's part of `stride` bytes, one after the other."""

    arena: Arena
    stride: int
    start: int
    """The address of this member's part."""


@final
class Regions:
    """All memory from `empty()` of one group. It lives as long as the group."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._regions: list[Region] = []

    def add(self, arena: Arena, stride: int) -> Tensor:
        """Take a new mapping in; gives this member's part of it."""
        mine = arena.memory[self._rank * stride : (self._rank + 1) * stride]
        self._regions.append(Region(arena, stride, mine.data_ptr()))
        return mine

    def place_of(self, tensor: Tensor) -> int:
        """Where the tensor lies in this member's parts, in one word that means the same to all members."""
        address = tensor.data_ptr()
        for index, region in enumerate(self._regions):
            offset = address - region.start
            if 0 <= offset < region.stride:
                return index << _OFFSET_BITS | offset
        return ELSEWHERE

    def view(self, place: int, rank: int, numel: int, dtype: torch.dtype) -> Tensor:
        """The tensor at that place in another member's part."""
        region = self._regions[place >> _OFFSET_BITS]
        start = rank * region.stride + (place & (1 << _OFFSET_BITS) - 1)
        return region.arena.memory[start : start + numel * dtype.itemsize].view(dtype)

    def clear(self) -> None:
        """Forget all memory: it is freed once no tensor shows it."""
        self._regions.clear()
