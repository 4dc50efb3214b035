"""Other processes of this machine: alive, stopped, dead, denied a processor; their Python stacks; this one's end.

- Death shows on a `pidfd` at once, even when the parent has not yet reaped the process, and when forked children still
  hold its sockets.
- A stop (SIGSTOP) shows in `/proc/<pid>/stat`. One look is not enough: a debugger's stop may be short, and some tools
  limit a process by stopping and continuing it in turn.
- Time in which a process was ready to run and got no processor (a quota, a crowded machine) shows in
  `/proc/<pid>/task/*/schedstat`.
- The stack of a stuck process: in every worker the interpreter's fault handler writes the stacks into a nameless file
  on a signal. It is written in C and needs no lock, so it answers from an endless loop and from a call that never
  returns. A peer sends the signal and reads the file through `/proc`; without `/proc` no stack is shown.

On other systems than Linux only deaths are seen.
"""

import atexit
import contextlib
import faulthandler
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, final

from shoal.events.clocks import delays_ns

_NO_DESCRIPTOR = -1
STACK_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""A real-time signal that other libraries are unlikely to use."""
STACK_ANSWER_S = 0.5
ANSWERS = "shoal/launch/hangs/watched.py"
"""Where our own thread waits for requests; it is left out of stacks."""


@final
class ProcessWatch:
    """The processes of all members this worker knows."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        self._stopped: dict[int, tuple[float, int]] = {}
        """Per process that was seen stopped: since when, and how long it had run by then."""
        self._delays: dict[int, tuple[object, dict[str, int]]] = {}
        """Per process: the silence being measured, and how long its threads had waited when it began."""

    def add(self, pids: Iterable[int]) -> None:
        """Watch these processes too."""
        for pid in pids:
            if pid not in self._descriptors and pid != os.getpid():
                self._descriptors[pid] = _NO_DESCRIPTOR
                with contextlib.suppress(OSError, AttributeError):  # gone already, or no such call here
                    self._descriptors[pid] = os.pidfd_open(pid)

    def dead(self, pid: int) -> bool:
        """Whether the process has ended."""
        descriptor = self._descriptors.get(pid)
        if descriptor is None:
            return False
        if descriptor == _NO_DESCRIPTOR:
            return _is_gone(pid)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def stopped_s(self, pid: int) -> float:
        """How long the process has been seen stopped without a break; call this repeatedly."""
        if _state(pid) != "T":
            self._stopped.pop(pid, None)
            return 0.0
        now, ran_ns = time.monotonic(), _ran_ns(pid)
        since, ran_before_ns = self._stopped.setdefault(pid, (now, ran_ns))
        if ran_ns != ran_before_ns:  # it was continued in between
            self._stopped[pid] = now, ran_ns
            return 0.0
        return now - since

    def seen_stopped(self, pid: int) -> bool:
        """Whether the process was stopped at the last look, however briefly."""
        return pid in self._stopped

    def starved_s(self, pid: int, silence: object) -> float:
        """How long the process has been ready to run without a processor, since the first call with this `silence`.

        The thread that waited longest counts. An endless loop is not starved: it runs.
        """
        delays = delays_ns(pid)
        if self._delays.get(pid, (None,))[0] != silence:
            self._delays[pid] = silence, delays
        before = self._delays[pid][1]
        return max((delay - before.get(thread, 0) for thread, delay in delays.items()), default=0) / 1e9

    def forget_stops(self) -> None:
        """Forget earlier observations, because this process itself was stopped."""
        self._stopped.clear()

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in self._descriptors.values():
            if descriptor != _NO_DESCRIPTOR:
                os.close(descriptor)
        self._descriptors.clear()


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _state(pid) == "Z"


def _state(pid: int) -> str:
    """The letter of a process's state: R, S, D, T (stopped), t (held by a debugger), Z …, or nothing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text[text.rindex(")") + 2]


def _ran_ns(pid: int) -> int:
    """How long the first thread of a process has run."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


@lru_cache(maxsize=1)
def answer_stack_requests(pid: int) -> int:
    """Answer the signal from now on; returns the descriptor that peers read. Once per process: `pid` is this one's."""
    if not hasattr(os, "memfd_create"):
        return -1  # not Linux: no peer could read it
    descriptor = os.memfd_create("shoal stacks", os.MFD_CLOEXEC)
    faulthandler.register(STACK_SIGNAL, file=descriptor, all_threads=True)
    return descriptor


def _wait_for_turn(file: BinaryIO) -> None:
    """Let one peer ask at a time: no answer then begins inside another. Waits no longer than an answer takes."""
    deadline = time.monotonic() + STACK_ANSWER_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing the file releases it
            return
        time.sleep(0.01)


def stack_of(pid: int, descriptor: int) -> str:
    """The stacks of a live process that listens, or a note that they could not be read."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:
            _wait_for_turn(file)
            file.seek(0, os.SEEK_END)
            os.kill(pid, STACK_SIGNAL)
            deadline = time.monotonic() + STACK_ANSWER_S
            text = b""
            while time.monotonic() < deadline:
                time.sleep(0.02)
                more = file.read()
                if text and not more:
                    break
                text += more
        if text:
            threads = text.decode(errors="replace").rstrip("\n").split("\n\n")
            shown = [thread for thread in threads if ANSWERS not in "".join(thread.splitlines()[1:2])]
            return "\n".join(f"    {line}" for line in "\n\n".join(shown).splitlines())
    return "    (its stack could not be read)"


def at_exit(report: Callable[[BaseException | None], None]) -> Callable[[], None]:
    """Call `report` when this process ends, with the exception that ended it, if any; returns a way to cancel that.

    The end of a forked child does not count.
    """
    process = os.getpid()

    def call() -> None:
        if os.getpid() == process:
            # Python stores the uncaught exception here before it exits.
            report(getattr(sys, "last_value", None))

    atexit.register(call)
    return lambda: atexit.unregister(call)
