"""Memory from `empty()`: where in it a tensor is, and the same place in another member's part."""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.shared_memory.arena import Arena

ELSEWHERE = -1
"""The place of a tensor that is not in memory from `empty()`."""

_OFFSET_BITS = 40

MAX_KEPT = 1024
"""How many buffers' views are kept."""


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
        self._chunks: dict[tuple[object, ...], list[tuple[Tensor, ...]]] = {}

    def add(self, arena: Arena, stride: int) -> Tensor:
        """Add a new mapping; returns this member's part of it."""
        mine = arena.memory[self._rank * stride : (self._rank + 1) * stride]
        self._regions.append(Region(arena, stride, mine.data_ptr()))
        return mine

    def place_of(self, tensor: Tensor) -> int:
        """The tensor's place in this member's parts, as one word with the same meaning on all members."""
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

    def chunks(
        self, places: Sequence[int], numel: int, dtype: torch.dtype, start: int, stop: int, chunk_bytes: int
    ) -> list[tuple[Tensor, ...]]:
        """Elements `start` to `stop` of all members' tensors, in chunks: [(member 0's, member 1's, …), …].

        Making views costs more than adding a small chunk, and the same buffers come again every step: so
        the views are kept.
        """
        key = (*places, numel, dtype, start, stop)
        chunks = self._chunks.get(key)
        if chunks is None:
            if len(self._chunks) >= MAX_KEPT:
                self._chunks.clear()
            wholes = [self.view(place, rank, numel, dtype) for rank, place in enumerate(places)]
            step = max(1, chunk_bytes // dtype.itemsize)
            chunks = (
                list(zip(*[each[start:stop].split(step) for each in wholes], strict=True))
                if start < stop
                else []
            )
            self._chunks[key] = chunks
        return chunks

    def clear(self) -> None:
        """Forget all memory: it is freed once no tensor shows it."""
        self._regions.clear()
        self._chunks.clear()
