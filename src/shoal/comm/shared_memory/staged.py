"""Collectives through slots: what a member puts into its slot in a round, and what it takes from the others'.

A round carries one block of the piece; of a whole, the same block of each of its pieces ("rows"). Small
collectives are one such round, large ones several.
"""

from collections.abc import Callable
from typing import NamedTuple

from shoal.comm.reduction import Op, reduce_block
from shoal.comm.shared_memory.collective import Collective
from shoal.comm.shared_memory.slots import Slots

Step = Callable[[Slots, Collective, int, int], None]
"""(slots, item, which block, which slot)."""


class Way(NamedTuple):
    """How a collective goes through slots."""

    give: Step
    take: Step
    rows: bool = False
    """Whether a slot holds a block of every piece of a whole."""
    fills_whole: bool = False
    """Whether the result is the whole, and not the piece."""


def _give_piece(slots: Slots, item: Collective, block: int, slot: int) -> None:
    slots.put(item.pieces[block], slot)


def _give_roots_piece(slots: Slots, item: Collective, block: int, slot: int) -> None:
    if slots.rank == item.call.root:
        _give_piece(slots, item, block, slot)


def _give_rows(slots: Slots, item: Collective, block: int, slot: int) -> None:
    rows = item.rows[block]
    slots.views(rows.dtype, rows.numel(), slot)[slots.rank].view(rows.shape).copy_(rows)


def _give_roots_rows(slots: Slots, item: Collective, block: int, slot: int) -> None:
    if slots.rank == item.call.root:
        _give_rows(slots, item, block, slot)


def _take_reduction(slots: Slots, item: Collective, block: int, slot: int) -> None:
    if item.call.root in (None, slots.rank):
        part = item.pieces[block]
        reduce_block(item.call.op or Op.SUM, slots.views(part.dtype, part.numel(), slot), part)


def _take_reduction_of_my_rows(slots: Slots, item: Collective, block: int, slot: int) -> None:
    part = item.pieces[block]
    length = part.numel()
    views = slots.views(part.dtype, slots.size * length, slot)
    mine = slice(slots.rank * length, (slots.rank + 1) * length)
    reduce_block(item.call.op or Op.SUM, [view[mine] for view in views], part)


def _take_my_rows(slots: Slots, item: Collective, block: int, slot: int) -> None:
    out = item.pieces[block]
    length = out.shape[1]
    views = slots.views(out.dtype, slots.size * length, slot)
    for row, view in zip(out, views, strict=False):
        row.copy_(view[slots.rank * length : (slots.rank + 1) * length])


def _take_pieces(slots: Slots, item: Collective, block: int, slot: int) -> None:
    if item.call.root in (None, slots.rank):
        part = item.pieces[block]
        for row, view in zip(item.rows[block], slots.views(part.dtype, part.numel(), slot), strict=False):
            row.copy_(view)


def _take_roots_piece(slots: Slots, item: Collective, block: int, slot: int) -> None:
    if slots.rank != item.call.root:
        part = item.pieces[block]
        part.copy_(slots.views(part.dtype, part.numel(), slot)[item.call.root or 0])


def _take_my_row_of_root(slots: Slots, item: Collective, block: int, slot: int) -> None:
    part = item.pieces[block]
    length = part.numel()
    view = slots.views(part.dtype, slots.size * length, slot)[item.call.root or 0]
    part.copy_(view[slots.rank * length : (slots.rank + 1) * length])


def _nothing(slots: Slots, item: Collective, block: int, slot: int) -> None:
    del slots, item, block, slot


STAGED: dict[str, Way] = {
    "all_reduce": Way(_give_piece, _take_reduction),
    "reduce": Way(_give_piece, _take_reduction),
    "reduce_scatter": Way(_give_rows, _take_reduction_of_my_rows, rows=True),
    "all_gather": Way(_give_piece, _take_pieces, fills_whole=True),
    "gather": Way(_give_piece, _take_pieces, fills_whole=True),
    "all_to_all": Way(_give_rows, _take_my_rows, rows=True),
    "broadcast": Way(_give_roots_piece, _take_roots_piece),
    "scatter": Way(_give_roots_rows, _take_my_row_of_root, rows=True),
    "barrier": Way(_nothing, _nothing),
    "empty": Way(_nothing, _nothing),
}
"""Every collective's way."""
