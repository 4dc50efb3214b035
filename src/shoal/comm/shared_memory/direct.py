"""Collectives in each other's memory: where tensors come from `empty()`, nothing is copied in or out.

Each function runs when every member has arrived, and does this member's part of the work; one more round then tells all
members that every part is done. Work goes in chunks.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.algorithms import chunk_bounds
from shoal.comm.reduction import Op, reduce_into_first, tree_reduce
from shoal.comm.shared_memory.arena import Arena
from shoal.comm.signature import Signature

ELSEWHERE = -1
"""The place of a tensor that is not in memory from `empty()`."""

_OFFSET_BITS = 40

MAX_KEPT = 1024
"""How many buffers' views are kept."""
CHUNK_BYTES = 4 * 1024 * 1024
"""Large: a copy should not write lines that the addition has just pulled into the nearest cache.

With 256 KiB an all-reduce of 8 MiB took 1.2 ms, with 4 MiB 0.95 (two workers, Neoverse N1)."""


class SharedRegion(NamedTuple):
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
        self._regions: list[SharedRegion] = []
        self._chunks: dict[tuple[object, ...], list[tuple[Tensor, ...]]] = {}

    def add(self, arena: Arena, stride: int) -> Tensor:
        """Add a new mapping; returns this member's part of it."""
        mine = arena.memory[self._rank * stride : (self._rank + 1) * stride]
        self._regions.append(SharedRegion(arena, stride, mine.data_ptr()))
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
        self, places: Sequence[int], numel: int, dtype: torch.dtype, start: int, stop: int
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
            step = CHUNK_BYTES // dtype.itemsize
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


class Places(NamedTuple):
    """Where all members' tensors of one collective are in the memory of a group, seen by member `rank`."""

    regions: Regions
    call: Signature
    rank: int
    pieces: Sequence[int]
    wholes: Sequence[int]

    def my_part_of_pieces(self) -> list[tuple[Tensor, ...]]:
        """This member's part of all members' pieces, in chunks."""
        numel = self.call.numel
        start, stop = chunk_bounds(numel, len(self.pieces), self.rank)
        return self.regions.chunks(self.pieces, numel, self.call.dtype, start, stop)

    def my_piece_of_wholes(self) -> list[tuple[Tensor, ...]]:
        """This member's piece of all members' wholes, in chunks."""
        numel, size = self.call.numel, len(self.wholes)
        start = self.rank * numel
        return self.regions.chunks(self.wholes, size * numel, self.call.dtype, start, start + numel)

    def piece_of(self, rank: int) -> Tensor:
        """A member's piece."""
        return self.regions.view(self.pieces[rank], rank, self.call.numel, self.call.dtype)


Direct = Callable[[Places, Tensor, Tensor | None], None]
"""(places, this member's piece, its whole)."""


def _sum_in_place(op: Op, views: Sequence[Tensor]) -> None:
    """Make all views their balanced-tree reduction: in the first, then copied to the rest."""
    reduce_into_first(op, views)
    for view in views[1:]:
        view.copy_(views[0])


def _all_reduce(places: Places, piece: Tensor, whole: Tensor | None) -> None:
    """Each member reduces its own part of all buffers, in all buffers."""
    for views in places.my_part_of_pieces():
        _sum_in_place(places.call.op or Op.SUM, views)


def _reduce(places: Places, piece: Tensor, whole: Tensor | None) -> None:
    """Each member reduces its own part of all buffers into the root's."""
    for views in places.my_part_of_pieces():
        tree_reduce(places.call.op or Op.SUM, views, views[places.call.root or 0])


def _reduce_scatter(places: Places, piece: Tensor, whole: Tensor | None) -> None:
    """Each member reduces its own piece of all wholes into its piece."""
    outs = piece.split(CHUNK_BYTES // piece.itemsize)
    for parts, out in zip(places.my_piece_of_wholes(), outs, strict=True):
        tree_reduce(places.call.op or Op.SUM, parts, out)


def _all_gather_push(places: Places, piece: Tensor, whole: Tensor | None) -> None:
    """Each member writes its piece into all wholes."""
    parts = piece.split(CHUNK_BYTES // piece.itemsize)
    for targets, part in zip(places.my_piece_of_wholes(), parts, strict=True):
        for target in targets:
            if target.data_ptr() != part.data_ptr():
                target.copy_(part)


def _all_gather_pull(places: Places, piece: Tensor, whole: Tensor | None) -> None:
    """Each member reads all pieces."""
    if whole is not None:
        for other, row in enumerate(whole.view(len(places.pieces), places.call.numel)):
            row.copy_(places.piece_of(other))


def _all_to_all(places: Places, piece: Tensor, whole: Tensor | None) -> None:
    """Each member reads its own piece of all wholes."""
    rows = piece.view(len(places.wholes), places.call.numel).split(CHUNK_BYTES // piece.itemsize, dim=1)
    for parts, block in zip(places.my_piece_of_wholes(), rows, strict=True):
        for row, part in zip(block, parts, strict=True):
            row.copy_(part)


def _broadcast(places: Places, piece: Tensor, whole: Tensor | None) -> None:
    """Each member reads the root's buffer."""
    root = places.call.root or 0
    if places.rank != root:
        piece.copy_(places.piece_of(root))


def choose_direct(places: Places) -> Direct | None:
    """How a collective works in all members' memory, or None where its tensors do not allow that."""
    operation, root = places.call.operation, places.call.root or 0
    if ELSEWHERE not in places.wholes and operation in WITH_WHOLES:
        return WITH_WHOLES[operation]
    if ELSEWHERE not in places.pieces and operation in WITH_PIECES:
        return WITH_PIECES[operation]
    return _broadcast if operation == "broadcast" and places.pieces[root] != ELSEWHERE else None


WITH_WHOLES: dict[str, Direct] = {
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather_push,
    "all_to_all": _all_to_all,
}
"""What is done where all members' wholes are in the memory of the group."""

WITH_PIECES: dict[str, Direct] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "all_gather": _all_gather_pull,
}
"""What is done where all members' pieces are."""
