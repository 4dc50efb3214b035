"""What a student's code may use: processes, memory, size of files.

The kernel limits each process. What all processes of a task use together is summed up from outside, again and again.
"""

import os
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

GIB = 2**30
MOST_OPEN = 1024
"""Files and sockets of a process: the kernel holds memory for each that no process shows."""


@dataclass(frozen=True)
class Limits:
    """Limits of one task of one folder."""

    work_s: float = 30.0
    """How long the student's code may run in one test of a task."""
    memory_gib: float = 4.0
    """Memory of all processes together, beyond what they share with the process that has imported torch."""
    processes: int = 128
    """Processes and threads at once."""
    file_gib: float = 0.5
    """Size of everything written in the private folders."""

    @property
    def task_s(self) -> float:
        """How long a whole task may take: it has several tests, and nodes that start first."""
        return 60.0 + 6 * self.work_s


def apply(limits: Limits, private: bool) -> None:
    """Limit this process and its children. `private`: they are alone in a user namespace."""
    _limit(resource.RLIMIT_AS, _address_space() + int(limits.memory_gib * GIB))
    _limit(resource.RLIMIT_FSIZE, int(limits.file_gib * GIB))
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, MOST_OPEN)
    others = 0 if private else _threads_of_user()
    _limit(resource.RLIMIT_NPROC, others + limits.processes)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _address_space() -> int:
    """Bytes of this process's address space now; torch's libraries alone take several GiB."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 16 * GIB


def _threads_of_user() -> int:
    """Threads that this user already has: the system counts them against the same limit."""
    uid = os.getuid()
    return sum(each.threads for each in _processes("/proc").values() if each.user == uid)


class _Process(NamedTuple):
    """A process, as the kernel's folder of processes shows it."""

    user: int
    parent: int
    threads: int
    resident: int
    """Bytes in memory; those that it shares with other processes as well."""


def exceeded(limits: Limits, proc: str, first: int) -> str:
    """The fault of the processes below `first`, if together they use more than they may; else nothing.

    `proc` is the kernel's folder of processes. The first process runs no student's code, and does not count.
    """
    below = _below(_processes(proc), first)
    if sum(each.threads for each in below.values()) > limits.processes:
        return "over_processes"
    most = limits.memory_gib * GIB
    # Forked processes share most of their memory. To divide it among them takes long, so the sum comes first.
    if sum(each.resident for each in below.values()) <= most:
        return ""
    shares = (_share(proc, number) or each.resident for number, each in below.items())
    return "over_memory" if sum(shares) > most else ""


def _processes(proc: str) -> dict[int, _Process]:
    found: dict[int, _Process] = {}
    for name in filter(str.isdigit, os.listdir(proc) if os.path.isdir(proc) else ()):
        try:
            user = os.stat(f"{proc}/{name}").st_uid
            # The name of a program, in parentheses, may contain anything.
            fields = Path(proc, name, "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        resident = int(fields[21]) * resource.getpagesize()
        found[int(name)] = _Process(user, int(fields[1]), int(fields[17]), resident)
    return found


def _below(found: Mapping[int, _Process], first: int) -> dict[int, _Process]:
    """The descendants of a process."""
    parents, below = {first}, dict[int, _Process]()
    while children := {n: each for n, each in found.items() if each.parent in parents and n not in below}:
        below |= children
        parents = set(children)
    return below


def _share(proc: str, number: int) -> int:
    """A process's memory, where pages of several processes count in equal parts; 0 if the kernel does not say."""
    try:
        rolled_up = Path(proc, str(number), "smaps_rollup").read_bytes()
    except OSError:
        return 0
    share = re.search(rb"^Pss: +(\d+) kB", rolled_up, re.MULTILINE)
    return int(share[1]) * 1024 if share else 0
