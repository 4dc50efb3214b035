"""Collectives through slots: what a member puts into its slot in a round, and what it takes from all slots.

A round carries one block of the piece; of a whole, the same block of each of its pieces ("rows"). A small collective is
one such round, a large one several.
"""

import ctypes
from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.reduction import Op, tree_reduce
from shoal.comm.shared_memory.arena import NUM_SLOTS, Arena, ArenaLayout
from shoal.comm.signature import Signature

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


Step = Callable[[Slots, Signature, Tensor, Tensor | None, int], None]
"""(slots, call, block of the piece, block of the rows, which slot)."""


class StagedWay(NamedTuple):
    """How a collective goes through slots."""

    give: Step
    take: Step
    rows: bool = False
    """Whether a slot holds a block of every piece of a whole."""


def _give_piece(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    slots.put(piece, slot)


def _give_roots_piece(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    if slots.rank == call.root:
        slots.put(piece, slot)


def _give_rows(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    if rows is not None:  # only the root of a scatter has them
        slots.views(rows.dtype, rows.numel(), slot)[slots.rank].view(rows.shape).copy_(rows)


def _take_reduction(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    if call.root is None or call.root == slots.rank:
        tree_reduce(call.op or Op.SUM, slots.views(piece.dtype, piece.numel(), slot), piece)


def _take_reduction_of_my_rows(
    slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int
) -> None:
    tree_reduce(call.op or Op.SUM, slots.my_rows(piece.dtype, piece.numel(), slot), piece)


def _take_my_rows(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    table = piece if piece.dim() == 2 else piece.view(slots.size, -1) if piece.numel() else piece.view(1, 0)
    for row, view in zip(table, slots.my_rows(piece.dtype, table.shape[1], slot), strict=False):
        row.copy_(view)


def _take_pieces(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    if rows is not None:  # only the root of a gather has them
        for row, view in zip(rows, slots.views(piece.dtype, piece.numel(), slot), strict=False):
            row.copy_(view)


def _take_roots_piece(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    if slots.rank != call.root:
        piece.copy_(slots.views(piece.dtype, piece.numel(), slot)[call.root or 0])


def _take_roots_row(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    piece.copy_(slots.my_rows(piece.dtype, piece.numel(), slot)[call.root or 0])


def _nothing(slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int) -> None:
    pass


STAGED: dict[str, StagedWay] = {
    "all_reduce": StagedWay(_give_piece, _take_reduction),
    "reduce": StagedWay(_give_piece, _take_reduction),
    "reduce_scatter": StagedWay(_give_rows, _take_reduction_of_my_rows, rows=True),
    "all_gather": StagedWay(_give_piece, _take_pieces),
    "gather": StagedWay(_give_piece, _take_pieces),
    "all_to_all": StagedWay(_give_rows, _take_my_rows, rows=True),
    "broadcast": StagedWay(_give_roots_piece, _take_roots_piece),
    "scatter": StagedWay(_give_rows, _take_roots_row, rows=True),
    "barrier": StagedWay(_nothing, _nothing),
    "empty": StagedWay(_nothing, _nothing),
}
"""How each collective goes."""
