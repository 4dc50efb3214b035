"""What has become of the other processes: alive, stopped, dead, silent. The only place that looks.

- Death shows on a `pidfd` at once, also when a parent has not yet reaped the child, also when forked
  children of the dead still hold its sockets.
- A stop (SIGSTOP) shows in `/proc/<pid>/stat`; one look is not enough, since a debugger's stop may be short.
- Progress is a time that every member writes into shared memory (`Board.alive_ns`).
"""

import os
import select
import time
from collections.abc import Iterable
from pathlib import Path
from typing import final

STOPPED_FOR_S = 0.3
"""How long a member must be seen stopped before it counts as stopped."""


@final
class Watch:
    """The processes of all members this worker knows."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        self._stopped_since: dict[int, float] = {}

    def add(self, pids: Iterable[int]) -> None:
        """Watch these processes too."""
        for pid in pids:
            if pid not in self._descriptors and pid != os.getpid():
                try:
                    self._descriptors[pid] = os.pidfd_open(pid)
                except ProcessLookupError:
                    self._descriptors[pid] = -1

    def dead(self, pid: int) -> bool:
        """Whether the process has ended."""
        descriptor = self._descriptors.get(pid)
        if descriptor is None:
            return False
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def stopped(self, pid: int) -> bool:
        """Whether the process has been seen stopped for a while; ask every now and then."""
        if _state(pid) != "T":
            self._stopped_since.pop(pid, None)
            return False
        since = self._stopped_since.setdefault(pid, time.monotonic())
        return time.monotonic() - since >= STOPPED_FOR_S

    def close(self) -> None:
        """Let go of all descriptors."""
        for descriptor in self._descriptors.values():
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptors.clear()


def _state(pid: int) -> str:
    """The letter for what a process does: R, S, D, T (stopped), t (held by a debugger), Z … or nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text[text.rindex(")") + 2]
