"""One started worker, as its supervisor sees it: a thread (`threads.py`) or a process (`process/processes.py`)."""

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from shoal.launch.failure import Failure
from shoal.launch.hangs.calls import Call
from shoal.launch.hangs.standing import Place
from shoal.launch.reports import Report

END_S = 5.0
"""How long workers that were killed may take to end."""
Handle = TypeVar("Handle", bound="WorkerHandle")


class WorkerHandle(ABC):
    """One started worker. Its reports come through a pipe, as lines of JSON."""

    def __init__(self, rank: int, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self.rank = rank
        self.finished = False
        """Whether the worker has reported that its work is done."""
        self.failure: Failure | None = None
        """The worker's own report of its failure."""
        self.cause: BaseException | None = None
        """The exception itself, where the worker shares our memory."""
        self.given_up = ""
        """Why the supervisor has given the worker up, if it has."""
        self.answer: Report | None = None
        """Its last answer to where it is."""
        self.waited: Call | None = None
        """The call of a torch group whose wait raised the error with which it failed."""
        self.made: Sequence[Call] = ()
        """Its last calls of torch's groups, as it reported them when it failed."""
        self.output = b""
        """The worker's output, if it is kept; known after `close`."""
        self._pipe, self._pipe_open, self._unread = pipe, True, b""

    def descriptors(self) -> list[int]:
        """File descriptors that become readable when the worker reports or ends."""
        return [self._pipe] if self._pipe_open else []

    def read(self) -> list[Report]:
        """The worker's reports since the last call."""
        while self._pipe_open:
            try:
                data = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                break
            self._unread += data
            self._pipe_open = bool(data)
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    @abstractmethod
    def poll(self) -> int | None:
        """The exit code, below 0 for a signal; None while the worker runs."""

    @abstractmethod
    def send_signal(self, number: int) -> None:
        """Send a signal to the worker and to all that it started."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker and all that it started, without waiting."""

    def stopped_s(self) -> float:
        """How long the worker has been seen stopped (SIGSTOP) without a break; call this repeatedly."""
        return 0.0

    def stack(self) -> Sequence[Place]:
        """The stack of a worker that shares our memory; a process is asked for it."""
        return []

    def name(self) -> str:
        """The worker, as the system knows it."""
        return f"rank {self.rank}"

    def close(self, wait_s: float) -> bool:
        """Wait at most that long for the end of a worker that was killed, and free what its handle holds.

        Returns whether it has ended.
        """
        os.close(self._pipe)
        return self.poll() is not None


def end_all(handles: Sequence[WorkerHandle], wait_s: float = END_S) -> list[WorkerHandle]:
    """End all workers: first kill each, then wait for each, `wait_s` in all. Returns those that have not ended.

    A process that waits in the kernel (state D: a dead disk, a dead network file system) cannot be killed.
    """
    for handle in handles:
        handle.kill()
    deadline = time.monotonic() + wait_s
    return [handle for handle in handles if not handle.close(max(0.0, deadline - time.monotonic()))]


def start(starters: Sequence[Callable[[int], Handle]]) -> list[Handle]:
    """Start the worker of each rank by its function, which gets the rank. If one cannot start, none is left."""
    handles: list[Handle] = []
    try:
        for rank, starter in enumerate(starters):
            handles.append(starter(rank))
    except BaseException:
        end_all(handles)
        raise
    return handles
