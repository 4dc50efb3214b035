"""Collectives through slots: what a member puts into its slot in a round, and what it takes from all slots.

A round carries one block of the piece; of a whole, the same block of each of its pieces ("rows"). A small collective is
one such round, a large one several.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from shoal.comm.reduction import Op, reduce_block
from shoal.comm.shared_memory.slots import Slots
from shoal.comm.signature import Signature

Step = Callable[[Slots, Signature, Tensor, Tensor | None, int], None]
"""(slots, call, block of the piece, block of the rows, which slot)."""


class Way(NamedTuple):
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
        reduce_block(call.op or Op.SUM, slots.views(piece.dtype, piece.numel(), slot), piece)


def _take_reduction_of_my_rows(
    slots: Slots, call: Signature, piece: Tensor, rows: Tensor | None, slot: int
) -> None:
    reduce_block(call.op or Op.SUM, slots.my_rows(piece.dtype, piece.numel(), slot), piece)


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


STAGED: dict[str, Way] = {
    "all_reduce": Way(_give_piece, _take_reduction),
    "reduce": Way(_give_piece, _take_reduction),
    "reduce_scatter": Way(_give_rows, _take_reduction_of_my_rows, rows=True),
    "all_gather": Way(_give_piece, _take_pieces),
    "gather": Way(_give_piece, _take_pieces),
    "all_to_all": Way(_give_rows, _take_my_rows, rows=True),
    "broadcast": Way(_give_roots_piece, _take_roots_piece),
    "scatter": Way(_give_rows, _take_roots_row, rows=True),
    "barrier": Way(_nothing, _nothing),
    "empty": Way(_nothing, _nothing),
}
"""How each collective goes."""
