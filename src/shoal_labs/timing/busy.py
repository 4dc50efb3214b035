"""How much of the machine other programs use while a lab measures: times of a busy machine decide nothing."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from shoal.kit.findings import Finding

BUSY = 0.1
"""A machine is busy if other programs use more than this part of its cores, and leave less than one of them idle."""
WINDOW_S = 60.0
"""The busiest stretch of this length counts: a program that runs for a second among many rounds does no harm."""
SHORTEST_S = 1.0
"""In a shorter stretch the ticks of Linux are too few."""
PROC = Path("/proc")
IDLE = (3, 4)
"""Fields of a core in /proc/stat in which it does nothing: idle, and waiting for a disk."""
GUEST = 8
"""From this field on, the time of virtual machines, which is also in the fields before."""


class Reading(NamedTuple):
    """Seconds since the machine started, and processor seconds on the cores that this process may use."""

    now_s: float
    others_s: float
    """All programs but this one and those that it started."""
    idle_s: float


class OtherWork:
    """Measures from its creation on. Linux counts the time of all programs; elsewhere it is unknown."""

    def __init__(self) -> None:
        self._cores = _cores()
        self._readings: list[Reading] = []
        self._most = 0.0
        self.part()

    def part(self) -> float:
        """The part of the machine that other programs used in its busiest minute so far; 0 if not busy, or unknown."""
        end = _reading(self._cores)
        if end is None:
            return self._most
        self._readings.append(end)
        before = [each for each in self._readings if end.now_s - each.now_s >= WINDOW_S]
        if before:
            self._most = max(self._most, _busy_part(before[-1], end, len(self._cores)))
            return self._most
        return _busy_part(self._readings[0], end, len(self._cores))


def trusted(findings: Mapping[str, Sequence[Finding]], busy: float) -> dict[str, list[Finding]]:
    """The findings by section; on a busy machine those about time are undecided. `busy`: from `OtherWork.part`."""
    return {
        section: [
            replace(finding, verdict="undecided", other_work=100 * busy)
            if busy and finding.about_time
            else finding
            for finding in made
        ]
        for section, made in findings.items()
    }


def _busy_part(start: Reading, end: Reading, cores: int) -> float:
    elapsed_s = end.now_s - start.now_s
    if elapsed_s < SHORTEST_S:
        return 0.0
    part = (end.others_s - start.others_s) / elapsed_s / cores
    is_full = (end.idle_s - start.idle_s) / elapsed_s < 1
    return min(1.0, part) if part > BUSY and is_full else 0.0


def _cores() -> frozenset[str]:
    """The names in /proc/stat of the cores that this process and its workers may use."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return frozenset(f"cpu{core}" for core in allowed)


def _reading(cores: frozenset[str]) -> Reading | None:
    try:
        rows = [line.split() for line in (PROC / "stat").read_text(encoding="ascii").splitlines()]
        fields = [[int(each) for each in row[1 : GUEST + 1]] for row in rows if row and row[0] in cores]
    except (OSError, ValueError):
        return None
    if len(fields) < len(cores) or not all(len(core) > max(IDLE) for core in fields):
        return None
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle_s = tick_s * sum(core[field] for core in fields for field in IDLE)
    return Reading(time.monotonic(), tick_s * (sum(map(sum, fields)) - _own_ticks()) - idle_s, idle_s)


def _own_ticks() -> int:
    """Processor time of this process and its descendants, the ended ones included: their parents' records have it."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            # The name of the program, in brackets, may contain anything.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)], ticks[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(pid, 0) for pid in own)
