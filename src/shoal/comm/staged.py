"""Collectives through slots: what a member puts into its slot in a round, and what it takes from the others'.

A round carries the elements from `start` to `stop` of the piece; of a whole, the same range of each of
its pieces ("rows"). Small collectives are one such round, large ones several.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from shoal.comm.collective import Collective
from shoal.comm.reduction import Op, reduce_block
from shoal.comm.slots import Slots


class Way(NamedTuple):
    """How a collective goes through slots; `rows` when a slot holds the range of every piece of a whole."""

    give: Callable[[Slots, Collective, int, int, int], None]
    take: Callable[[Slots, Collective, int, int, int], None]
    rows: bool = False


def _part(flat: Tensor, start: int, stop: int) -> Tensor:
    return flat if stop - start == flat.numel() else flat[start:stop]


def _whole_rows(item: Collective, size: int, start: int, stop: int) -> Tensor:
    if item.whole is None:
        raise AssertionError("only a member that has the whole gives or takes it")
    return item.whole.view(size, item.call.numel)[:, start:stop]


def _give_piece(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    views = slots.views(item.call.dtype, stop - start, slot)
    views[slots.rank].copy_(_part(item.piece, start, stop))


def _give_piece_at_root(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    if slots.rank == item.call.root:
        _give_piece(slots, item, start, stop, slot)


def _give_rows(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    views = slots.views(item.call.dtype, slots.size * (stop - start), slot)
    views[slots.rank].view(slots.size, -1).copy_(_whole_rows(item, slots.size, start, stop))


def _give_rows_at_root(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    if slots.rank == item.call.root:
        _give_rows(slots, item, start, stop, slot)


def _give_nothing(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    del slots, item, start, stop, slot


def _take_sum(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    if item.call.root in (None, slots.rank):
        views = slots.views(item.call.dtype, stop - start, slot)
        reduce_block(item.call.op or Op.SUM, views, _part(item.piece, start, stop))


def _take_sum_of_my_rows(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    views = slots.views(item.call.dtype, slots.size * (stop - start), slot)
    first = slots.rank * (stop - start)
    rows = [view[first : first + stop - start] for view in views]
    reduce_block(item.call.op or Op.SUM, rows, _part(item.piece, start, stop))


def _take_all(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    if item.call.root in (None, slots.rank):
        views = slots.views(item.call.dtype, stop - start, slot)
        for row, view in zip(_whole_rows(item, slots.size, start, stop), views, strict=True):
            row.copy_(view)


def _take_roots(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    if slots.rank != item.call.root:
        views = slots.views(item.call.dtype, stop - start, slot)
        _part(item.piece, start, stop).copy_(views[item.call.root or 0])


def _take_my_row_of_root(slots: Slots, item: Collective, start: int, stop: int, slot: int) -> None:
    view = slots.views(item.call.dtype, slots.size * (stop - start), slot)[item.call.root or 0]
    first = slots.rank * (stop - start)
    _part(item.piece, start, stop).copy_(view[first : first + stop - start])


STAGED: dict[str, Way] = {
    "all_reduce": Way(_give_piece, _take_sum),
    "reduce": Way(_give_piece, _take_sum),
    "reduce_scatter": Way(_give_rows, _take_sum_of_my_rows, rows=True),
    "all_gather": Way(_give_piece, _take_all),
    "gather": Way(_give_piece, _take_all),
    "broadcast": Way(_give_piece_at_root, _take_roots),
    "scatter": Way(_give_rows_at_root, _take_my_row_of_root, rows=True),
    "barrier": Way(_give_nothing, _give_nothing),
}
"""Every collective's way."""
