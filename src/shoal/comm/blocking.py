"""Calls that block, run in order on a thread of their own, so that the caller can look for failures meanwhile.

Gloo's messages are one such case: they can only be waited for by blocking, and a wait that times out breaks the
connection.
"""

import atexit
import queue
import threading
from collections.abc import Callable
from typing import final

LEAVE_S, EXIT_S = 0.2, 1.0
"""Seconds that a thread may take to end when it is closed, and once more when the process exits."""


@final
class BlockingCall:
    """One call: over when `finished` is set; `error` is what it raised."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.finished = threading.Event()
        self.error: Exception | None = None

    def over(self) -> bool:
        """Whether the call has returned; raises what it raised."""
        if self.finished.is_set() and self.error is not None:
            raise self.error
        return self.finished.is_set()

    def run(self) -> None:
        """Make the call."""
        try:
            self.work()
        except Exception as error:
            self.error = error
        self.finished.set()


@final
class BlockingThread:
    """A thread that makes calls in order, until one fails or `close`."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[BlockingCall | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, work: Callable[[], None]) -> BlockingCall:
        """Make this call after all before it."""
        call = BlockingCall(work)
        self._calls.put(call)
        return call

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run()
            if call.error is not None:
                return

    def close(self) -> None:
        """Ask the thread to end, and wait a moment; if it still blocks, it ends with the process.

        If its call returns while Python exits, C++ aborts the process. Often the other side also leaves, and the call
        returns soon: the process waits a little for that before it exits.
        """
        self._calls.put(None)
        self._thread.join(LEAVE_S)
        if self._thread.is_alive():
            atexit.register(self._thread.join, EXIT_S)
