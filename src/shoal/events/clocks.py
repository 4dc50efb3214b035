"""Offsets between the workers' clocks, and how long the machine kept this process's threads waiting for a core."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
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


BUSY = 0.10
"""The machine was busy if a thread was ready but not scheduled for more than this part of the time."""


class RunDelay:
    """Measures from its creation on. Linux counts this time for every thread; elsewhere it is unknown."""

    def __init__(self) -> None:
        self._start_ns = time.perf_counter_ns()
        self._before_ns = delays_ns()

    def fraction(self) -> float | None:
        """The part of the time that the most delayed thread was ready but not scheduled; None if unknown."""
        elapsed_ns = time.perf_counter_ns() - self._start_ns
        waited_ns = [now_ns - self._before_ns.get(thread, 0) for thread, now_ns in delays_ns().items()]
        return round(max(waited_ns) / elapsed_ns, 4) if waited_ns else None


def delays_ns(pid: int | str = "self") -> dict[str, int]:
    """The time that each thread of a process has waited for a processor so far."""
    delays: dict[str, int] = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            # A thread that ends meanwhile is left out, as is every thread on a kernel without these statistics.
            try:
                _, delay_ns, *_ = Path(f"/proc/{pid}/task", thread, "schedstat").read_text().split()
            except (OSError, ValueError):
                continue
            delays[thread] = int(delay_ns)
    except OSError:
        return {}
    return delays
