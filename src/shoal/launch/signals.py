"""Pass the launcher's signals on to its workers, which run in sessions of their own and receive none directly."""

import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from shoal.launch.handle import WorkerHandle
from shoal.training.stop import check_series, stop_signals, tell_series


class SignalRelay:
    """While this context is open, SIGINT, SIGTERM and SIGHUP are noted instead of raised; the first one is passed on.

    Ctrl-Z stops and continues the workers with the launcher. Only the main thread can handle signals; in any other
    thread this does nothing.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._handles: Sequence[WorkerHandle] = ()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "SignalRelay":
        check_series()
        if threading.current_thread() is threading.main_thread():
            handlers: dict[int, Any] = {
                **dict.fromkeys(stop_signals(), self._take),
                signal.SIGTSTP: self._pause,
            }
            self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        check_series()

    def pass_to(self, handles: Sequence[WorkerHandle]) -> None:
        """The workers from now on; a signal that came while they started is passed on now."""
        self._handles = handles
        for number in self.received[:1]:
            self._send(number)

    def _send(self, number: int) -> None:
        for handle in self._handles:
            handle.send_signal(number)

    def _take(self, number: int, frame: FrameType | None) -> None:
        """Raises nothing, so that it interrupts no clean-up."""
        self.received.append(number)
        tell_series(number)
        if len(self.received) == 1:
            self._send(number)

    def _pause(self, number: int, frame: FrameType | None) -> None:
        self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._send(signal.SIGCONT)
