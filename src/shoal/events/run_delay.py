"""Measures how busy the machine is: the time that threads of this process are ready to run but not scheduled."""

import os
import time
from pathlib import Path

BUSY = 0.10
"""The machine was busy if a thread was ready but not scheduled for more than this part of the time."""


class RunDelay:
    """Measures from its creation on. Linux counts this time for every thread; elsewhere it is unknown."""

    def __init__(self) -> None:
        self._start_ns = time.perf_counter_ns()
        self._before_ns = _delays_ns()

    def fraction(self) -> float | None:
        """The part of the time that the most delayed thread was ready but not scheduled; None if unknown."""
        elapsed_ns = time.perf_counter_ns() - self._start_ns
        delays_ns = [now_ns - self._before_ns.get(thread, 0) for thread, now_ns in _delays_ns().items()]
        return round(max(delays_ns) / elapsed_ns, 4) if delays_ns else None


def _delays_ns() -> dict[str, int]:
    """The time that each thread of this process has waited for a processor so far."""
    delays_ns: dict[str, int] = {}
    try:
        for thread in os.listdir("/proc/self/task"):
            # A thread that ends meanwhile is left out, as is every thread on a kernel without these statistics.
            try:
                _, delay_ns, *_ = Path("/proc/self/task", thread, "schedstat").read_text().split()
            except (OSError, ValueError):
                continue
            delays_ns[thread] = int(delay_ns)
    except OSError:
        return {}
    return delays_ns
