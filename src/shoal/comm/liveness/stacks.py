"""The Python stack of another process: shows where a stuck member is.

In every worker the interpreter's fault handler writes the stacks into a nameless file on a signal. It is written in C
and needs no lock, so it answers from an endless loop and from a call that never returns. A peer sends the signal and
reads the file through `/proc`; without `/proc` no stack is shown.
"""

import contextlib
import faulthandler
import fcntl
import os
import signal
import time
from functools import lru_cache
from typing import BinaryIO

SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""A real-time signal that other libraries are unlikely to use."""

ANSWER_S = 0.5


@lru_cache(maxsize=1)
def _listen(pid: int) -> int:
    del pid
    if not hasattr(os, "memfd_create"):
        return -1  # not Linux: no peer could read it
    descriptor = os.memfd_create("shoal stacks", os.MFD_CLOEXEC)
    faulthandler.register(SIGNAL, file=descriptor, all_threads=True)
    return descriptor


def listen() -> int:
    """Answer the signal from now on; returns the descriptor that peers read. Once per process."""
    return _listen(os.getpid())


def _wait_for_turn(file: BinaryIO) -> None:
    """Let one peer ask at a time: no answer then begins inside another. Waits no longer than an answer takes."""
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing the file releases it
            return
        time.sleep(0.01)


def ask(pid: int, descriptor: int) -> str:
    """The stacks of a live process that listens, or a note that they could not be read."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:
            _wait_for_turn(file)
            file.seek(0, os.SEEK_END)
            os.kill(pid, SIGNAL)
            deadline = time.monotonic() + ANSWER_S
            text = b""
            while time.monotonic() < deadline:
                time.sleep(0.02)
                more = file.read()
                if text and not more:
                    break
                text += more
        if text:
            return "\n".join(f"    {line}" for line in text.decode(errors="replace").splitlines())
    return "    (its stack could not be read)"
