"""Offsets between the workers' clocks, and the conversion of a worker's times to rank 0's clock."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class ClockOffset(NamedTuple):
    """A worker's clock minus rank 0's, measured at `at_ns` of its own clock with an error of at most `error_ns`."""

    at_ns: int
    offset_ns: int
    error_ns: int


def to_rank0_clock(measured: Sequence[ClockOffset]) -> Callable[[int], int]:
    """Converts a worker's times to rank 0's clock, given the offsets at the start and at the end of a run.

    The offset changes linearly between the two, because clocks drift. With one measurement it is constant; without any,
    the workers share a clock.

    >>> convert = to_rank0_clock([ClockOffset(1000, 500, 0), ClockOffset(2000, 520, 0)])
    >>> convert(1000), convert(1500), convert(2000)
    (500, 990, 1480)
    """
    if not measured:
        return lambda time_ns: time_ns
    first, last = measured[0], measured[-1]
    drift_ns, elapsed_ns = last.offset_ns - first.offset_ns, max(last.at_ns - first.at_ns, 1)
    # Integers: a float has not enough digits for nanoseconds since the machine started.
    return lambda time_ns: time_ns - first.offset_ns - drift_ns * (time_ns - first.at_ns) // elapsed_ns
