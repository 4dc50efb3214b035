"""Waiting for gloo's messages without being at their mercy.

Gloo's messages can only be waited for by blocking, and a wait that times out breaks the connection. So
one thread per neighbour and direction does the blocking, in order, and whoever really waits looks in from
time to time.
"""

import queue
import threading
from collections.abc import Callable
from typing import final

LEAVE_S = 0.2


@final
class BlockingCall:
    """One message on its way: over when `finished` is set; `error` says whether it went wrong."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.finished = threading.Event()
        self.error: Exception | None = None

    def over(self) -> bool:
        """Whether it has been done; raises what went wrong."""
        if self.finished.is_set() and self.error is not None:
            raise self.error
        return self.finished.is_set()

    def run(self) -> None:
        """Do the blocking."""
        try:
            self.work()
        except Exception as error:
            self.error = error
        self.finished.set()


@final
class BlockingThread:
    """A thread that runs jobs in order; it begins with the first one and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[BlockingCall | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, work: Callable[[], None]) -> BlockingCall:
        """Run this after everything before it."""
        job = BlockingCall(work)
        self._jobs.put(job)
        return job

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            if job.error is not None:
                return

    def close(self) -> None:
        """Ask the thread to end, and wait a moment; one that blocks in gloo ends with the process."""
        self._jobs.put(None)
        self._thread.join(LEAVE_S)
