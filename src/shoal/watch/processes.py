"""Whether a worker's process still runs, and how much memory it has. Linux tells for processes of this machine."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

TICKS = os.sysconf("SC_CLK_TCK")
TOLERANCE_S = 2.0
"""A process that began later than its first event, by more than this, has the number of one that is gone."""


def memory_of(start: Mapping[str, Any]) -> int | Literal["gone"] | None:
    """The resident bytes of the worker that wrote a start event; None if unknown, "gone" if it has ended."""
    pid = start.get("pid")
    if (
        not isinstance(pid, int)
        or start.get("host") != platform.node()
        or not Path("/proc/self/stat").exists()
    ):
        return None
    try:
        # The name of the process, in brackets, may contain blanks.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        state, began_ticks, pages = fields[0], int(fields[19]), int(fields[21])
        began_s = _booted_s() + began_ticks / TICKS
    except (OSError, ValueError, IndexError):
        return "gone"
    is_another = began_s > start.get("time_ns", 0) / 1e9 + TOLERANCE_S
    return "gone" if state in "ZX" or is_another else pages * os.sysconf("SC_PAGE_SIZE")


def _booted_s() -> float:
    """When the machine started, in seconds since 1970."""
    return next(
        float(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime")
    )
