"""What a student's code may use: processes, memory, size of files."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30


@dataclass(frozen=True)
class Limits:
    """Limits of one task of one folder."""

    work_s: float = 30.0
    """How long the student's code may run in one test of a task."""
    memory_gib: float = 4.0
    """Memory of each process, beyond what Python and torch take."""
    processes: int = 128
    """Processes and threads at once."""
    file_gib: float = 0.5
    """Size of a file, and of everything written in the private folders."""

    @property
    def task_s(self) -> float:
        """How long a whole task may take: it has several tests, and nodes that start first."""
        return 60.0 + 6 * self.work_s


def apply(limits: Limits, private: bool) -> None:
    """Limit this process and its children. `private`: they are alone in a user namespace."""
    _limit(resource.RLIMIT_AS, _address_space() + int(limits.memory_gib * GIB))
    _limit(resource.RLIMIT_FSIZE, int(limits.file_gib * GIB))
    _limit(resource.RLIMIT_CORE, 0)
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
    count = 0
    for entry in Path("/proc").glob("[0-9]*") if Path("/proc").exists() else ():
        try:
            if entry.stat().st_uid == os.getuid():
                count += sum(1 for _ in (entry / "task").iterdir())
        except OSError:
            continue  # it ended meanwhile
    return count
