"""Reductions of several tensors to one: the operations, and the one order in which they are applied.

Floating-point addition is not associative, so the order of a sum is part of its result. Everywhere in this folder it is
the balanced tree over ranks, neighbours first: ((0+1)+(2+3))+(4+5) … It has the smallest rounding error of the simple
orders (log₂ size additions deep instead of size), and it does not depend on the order of arrival.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor


class Op(Enum):
    """What a reduction does with the members' elements."""

    SUM = "sum"
    AVERAGE = "average"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"

    # Enum's own hash is written in Python, and every call looks its operation up a few times.
    __hash__ = object.__hash__


OpName = Literal["sum", "average", "min", "max", "product"]


COMBINE: dict[Op, Callable[..., Tensor]] = {
    Op.SUM: torch.add,
    Op.AVERAGE: torch.add,
    Op.MIN: torch.minimum,
    Op.MAX: torch.maximum,
    Op.PRODUCT: torch.mul,
}
"""How two partial results become one. An average is a sum that is divided once, at the end."""


def makes_sense(op: Op, dtype: torch.dtype) -> bool:
    """Whether `op` gives a value of `dtype` again: no averages of integers, only min and max of bool."""
    if dtype is torch.bool:
        return op in (Op.MIN, Op.MAX)
    return op is not Op.AVERAGE or dtype.is_floating_point or dtype.is_complex


@lru_cache(maxsize=256)
def tree_steps(size: int) -> tuple[tuple[int, int, int], ...]:
    """The balanced tree over `size` leaves as (target, left, right); targets count on from `size`.

    A target is used again once its value has been consumed, so that only about log₂ size of them are alive.

    >>> tree_steps(4)
    ((4, 0, 1), (5, 2, 3), (4, 4, 5))
    >>> tree_steps(3)
    ((3, 0, 1), (3, 3, 2))
    """
    steps: list[tuple[int, int, int]] = []

    def fold(start: int, stop: int, target: int) -> int:
        if stop - start == 1:
            return start
        half = 1 << (stop - start - 1).bit_length() - 1
        left = fold(start, start + half, target)
        right = fold(start + half, stop, target + (left >= size))
        steps.append((target, left, right))
        return target

    fold(0, size, size)
    return tuple(steps)


def tree_reduce(op: Op, tensors: Sequence[Tensor], out: Tensor) -> None:
    """Put into `out` the reduction of `tensors` in balanced-tree order. `out` may be one of the tensors.

    Costs size − 1 passes over the elements, and memory for about log₂ size intermediate values, which are written over
    each other.

    >>> out = torch.empty(1)
    >>> tree_reduce(Op.AVERAGE, [torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([6.0])], out)
    >>> out
    tensor([3.])
    """
    size = len(tensors)
    combine = COMBINE[op]
    if size == 2:
        combine(tensors[0], tensors[1], out=out)
    elif size == 1:
        out.copy_(tensors[0])
    else:
        steps = tree_steps(size)
        places: list[Any] = [*tensors, *[None] * size]
        for target, left, right in steps[:-1]:
            places[target] = combine(places[left], places[right], out=places[target])
        _, left, right = steps[-1]
        combine(places[left], places[right], out=out)
    if op is Op.AVERAGE:
        out.div_(size)


def reduce_into_first(op: Op, tensors: Sequence[Tensor]) -> None:
    """Make the first tensor the balanced-tree reduction of all. The others serve as scratch, and are overwritten."""
    combine, size = COMBINE[op], len(tensors)
    distance = 1
    while distance < size:
        for low in range(0, size - distance, 2 * distance):
            combine(tensors[low], tensors[low + distance], out=tensors[low])
        distance *= 2
    if op is Op.AVERAGE:
        tensors[0].div_(size)
