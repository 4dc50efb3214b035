"""How much of the machine other programs used while a lab ran: times of a busy machine mean little."""

import os
import time
from pathlib import Path

BUSY = 0.1
"""Other programs that use more than this part of the machine are mentioned in the report."""
STAT = Path("/proc/stat")
IDLE = (3, 4)
"""Fields of the first line of /proc/stat in which a core does nothing: idle, and waiting for a disk."""
GUEST = 8
"""From this field on, the time of virtual machines, which is also in the fields before."""


class OtherWork:
    """Measures from its creation on. Linux counts the time of all programs; elsewhere it is unknown."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._before_s = _others_s()

    def fraction(self) -> float | None:
        """The part of the machine that other programs used; None if unknown."""
        now_s, elapsed_s = _others_s(), time.monotonic() - self._start_s
        if now_s is None or self._before_s is None or elapsed_s <= 0:
            return None
        return max(0.0, (now_s - self._before_s) / elapsed_s / (os.cpu_count() or 1))

    def busy(self) -> float:
        """That part in per cent if it is worth mentioning, else 0."""
        part = self.fraction() or 0.0
        return 100 * part if part > BUSY else 0.0


def _others_s() -> float | None:
    """Processor time of all programs but this one and those it started and has waited for."""
    try:
        fields = [int(each) for each in STAT.read_text(encoding="ascii").splitlines()[0].split()[1:]]
    except (OSError, ValueError, IndexError):
        return None
    ticks = sum(each for number, each in enumerate(fields[:GUEST]) if number not in IDLE)
    own = os.times()
    return ticks / os.sysconf("SC_CLK_TCK") - (
        own.user + own.system + own.children_user + own.children_system
    )
