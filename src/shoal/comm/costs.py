"""What each worker sends in every all-reduce by messages, and in every collective of a group, for any world size.

`sent` in every table and record is counted with these formulas, whatever a group really does: the libraries below it
choose their own algorithms, and shared memory moves nothing over a link. Write W for the number of workers, n for the
elements of the whole buffer. A collective counts as its ring::

    all_reduce                   2 n (W − 1) / W from each worker
    reduce_scatter, all_gather   n (W − 1) / W from each worker
    all_to_all                   n (W − 1) / W from each worker
    broadcast, reduce            n from each worker but one: the last of the ring, or the root
    gather                       n / W from each worker but the root
    scatter                      n (W − 1) / W from the root

Tests compare the algorithms with what `traced` counts while they run.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from shoal.comm.algorithms import chunk_bounds


class SendCost(NamedTuple):
    """What one worker sends."""

    messages: int
    elements: int


def _chunk(numel: int, size: int, index: int) -> int:
    start, stop = chunk_bounds(numel, size, index % size)
    return stop - start


def _whole(messages: int, numel: int) -> SendCost:
    return SendCost(messages, messages * numel)


def _reduce_scatter_all_gather(rank: int, size: int, numel: int) -> SendCost:
    mine = _chunk(numel, size, rank)
    return SendCost(2 * (size - 1), (numel - mine) + (size - 1) * mine)


def _ring(rank: int, size: int, numel: int) -> SendCost:
    # Every chunk passes here once in each phase, except the one that ends here.
    return SendCost(2 * (size - 1), 2 * numel - _chunk(numel, size, rank + 1) - _chunk(numel, size, rank + 2))


def _tree(rank: int, size: int, numel: int) -> SendCost:
    # To the parent once, and down to every child: the bits below the lowest set one that stay within the group.
    lowest = rank & -rank if rank else 1 << (size - 1).bit_length()
    children = sum(1 for level in range(lowest.bit_length() - 1) if rank + (1 << level) < size)
    return _whole(children + (rank != 0), numel)


def _halving_doubling(rank: int, size: int, numel: int) -> SendCost:
    power = 1 << size.bit_length() - 1
    surplus = size - power
    if rank < 2 * surplus and rank % 2 == 1:
        return SendCost(1, numel)
    number = rank // 2 if rank < 2 * surplus else rank - surplus
    messages, elements, start, stop = 0, 0, 0, numel
    for level in range(power.bit_length() - 1):
        middle = (start + stop) // 2
        kept = (start, middle) if number >> level & 1 == 0 else (middle, stop)
        # The half that is sent now, and the half that is kept, which is sent as a finished sum in the second phase.
        elements += stop - start
        messages += 2
        start, stop = kept
    return SendCost(messages + 1, elements + numel) if rank < 2 * surplus else SendCost(messages, elements)


COSTS: dict[str, Callable[[int, int, int], SendCost]] = {
    "central": lambda rank, size, numel: _whole(size - 1 if rank == 0 else 1, numel),
    "reduce_broadcast": lambda rank, size, numel: _whole(1 if rank in (0, size - 1) else 2, numel),
    "all_gather_sum": lambda rank, size, numel: _whole(size - 1, numel),
    "reduce_scatter_all_gather": _reduce_scatter_all_gather,
    "ring": _ring,
    "tree": _tree,
    "halving_doubling": _halving_doubling,
}
"""What the worker of (rank, size, numel) sends."""


def sends(algorithm: str, rank: int, size: int, numel: int) -> SendCost:
    """What one worker sends in an all-reduce by the named algorithm.

    >>> sends("ring", rank=0, size=4, numel=1000)
    SendCost(messages=6, elements=1500)
    """
    return COSTS[algorithm](rank, size, numel) if size > 1 else SendCost(0, 0)


def _to_all_others(place: int, size: int, piece: int) -> int:
    return (size - 1) * piece


def _no_elements(place: int, size: int, numel: int) -> int:
    return 0


COLLECTIVES: dict[str, Callable[[int, int, int], int]] = {
    "all_reduce": lambda place, size, numel: _ring(place, size, numel).elements,
    "reduce_scatter": _to_all_others,
    "all_gather": _to_all_others,
    "all_to_all": _to_all_others,
    "broadcast": lambda place, size, numel: numel if place < size - 1 else 0,
    "reduce": lambda place, size, numel: numel if place else 0,
    "gather": lambda place, size, piece: piece if place else 0,
    "scatter": lambda place, size, piece: 0 if place else (size - 1) * piece,
    "barrier": _no_elements,
    "split": _no_elements,
    "empty": _no_elements,
}
"""Elements that the worker at a place of the ring sends, which the root begins; of (place, size, elements).

The elements are the piece's where there is a whole of several pieces.
"""


@lru_cache(maxsize=8192)
def sent_elements(operation: str, rank: int, size: int, numel: int, root: int = 0) -> int:
    """The elements that one worker sends in a collective; `numel` counts the piece where there is a whole.

    >>> [sent_elements("all_reduce", rank, 4, 1000) for rank in range(4)]
    [1500, 1500, 1500, 1500]
    >>> sent_elements("reduce_scatter", 0, 4, 250) + sent_elements("all_gather", 0, 4, 250)
    1500
    >>> [sent_elements("broadcast", rank, 4, 1000, root=1) for rank in range(4)]
    [0, 1000, 1000, 1000]
    """
    return COLLECTIVES[operation]((rank - root) % size, size, numel) if size > 1 else 0


def mean_elements(operation: str, size: int, numel: int) -> float:
    """The mean over all workers of what they send in a collective, which is also the mean of what they receive.

    >>> mean_elements("all_reduce", 4, 1000), mean_elements("all_gather", 4, 1000)
    (1500.0, 3000.0)
    """
    return sum(sent_elements(operation, rank, size, numel) for rank in range(size)) / size
