"""The collectives that `shoal bench` measures: how each is called, what it must give, and what crosses between workers.

Every operation has two buffers, `piece` and `whole`. A whole has the size that is measured; a piece is one worker's
share of it for operations in SHARES, and as large as the whole for the others. Each worker fills both with a number of
its own; where a worker sends different parts to different workers, the parts differ.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.reduction import Op

BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda size: 2 * (size - 1) / size,
    "all_gather": lambda size: (size - 1) / size,
    "reduce_scatter": lambda size: (size - 1) / size,
    "broadcast": lambda size: 1.0,
    "reduce": lambda size: 1.0,
    "gather": lambda size: (size - 1) / size,
    "scatter": lambda size: (size - 1) / size,
    "all_to_all": lambda size: (size - 1) / size,
}
"""The share of the bytes that crosses between workers, per operation."""
SHARES = frozenset({"all_gather", "reduce_scatter", "gather", "scatter"})
"""Operations with a whole and one worker's piece of it."""
ADDRESSED = frozenset({"scatter", "all_to_all"})
"""Operations in which a worker sends different parts of its whole to different workers."""
APART = 100.0
"""The difference between two of these parts: more than between two workers."""


def runs(group: Group, op: Op) -> dict[str, Callable[[Tensor, Tensor], object]]:
    """Each operation as a call with (piece, whole); the root is rank 0."""
    at_root = group.rank == 0
    return {
        "all_reduce": lambda piece, whole: group.all_reduce(piece, op).wait(),
        "all_gather": lambda piece, whole: group.all_gather(whole, piece).wait(),
        "reduce_scatter": lambda piece, whole: group.reduce_scatter(piece, whole, op).wait(),
        "broadcast": lambda piece, whole: group.broadcast(piece, 0).wait(),
        "reduce": lambda piece, whole: group.reduce(piece, 0, op).wait(),
        "gather": lambda piece, whole: group.gather(whole if at_root else None, piece).wait(),
        "scatter": lambda piece, whole: group.scatter(piece, whole if at_root else None).wait(),
        "all_to_all": lambda piece, whole: group.all_to_all(piece, whole).wait(),
    }


def number_of(rank: int, call: int) -> float:
    """What a worker fills its buffers with before a call."""
    return float(rank + 1 + call % 5)


def fill(operation: str, rank: int, size: int, call: int, piece: Tensor, whole: Tensor) -> None:
    """Fill a worker's buffers before a call."""
    for buffer in (piece, whole):
        buffer.fill_(number_of(rank, call))
    if operation in ADDRESSED:
        for to, part in enumerate(whole.view(size, -1)):
            part.add_(APART * to)


def num_wrong(operation: str, op: Op, rank: int, size: int, call: int, piece: Tensor, whole: Tensor) -> int:
    """How many elements are not what they should be after a call."""
    given = [number_of(each, call) for each in range(size)]
    combined = {Op.SUM: sum(given), Op.MIN: min(given), Op.MAX: max(given), Op.PRODUCT: math.prod(given)}
    combined[Op.AVERAGE] = combined[Op.SUM] / size
    found, expected = piece, [combined[op]]
    if operation == "all_gather" or (operation == "gather" and rank == 0):
        found, expected = whole, given
    elif operation == "gather":
        expected = [given[rank]]
    elif operation == "broadcast":
        expected = [given[0]]
    elif operation == "reduce" and rank != 0:
        expected = [given[rank]]
    elif operation == "scatter":
        expected = [given[0] + APART * rank]
    elif operation == "all_to_all":
        expected = [each + APART * rank for each in given]
    right = torch.tensor(expected, device=found.device).repeat_interleave(found.numel() // len(expected))
    return int((found != right).sum().item())
