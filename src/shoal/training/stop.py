"""Ctrl-C, SIGTERM and SIGHUP ask a run to stop after the step in progress; a second one stops it at once.

Before the first step there is nothing to save, and reading data may take long: then the first one stops it at once.
"""

import signal
import threading
from types import FrameType
from typing import Any


def stop_signals() -> list[int]:
    """The signals that ask a run to stop: SIGHUP too, unless `nohup` has it ignored."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignores_hangup else [signal.SIGHUP])]


class StopRequest:
    """Inside this context, the first signal sets `signal`, and the second one raises KeyboardInterrupt.

    Until `run_has_begun` is set, the first one raises it already. It has the name of the signal.

    Only the main thread can handle signals; in other threads this has no effect.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.run_has_begun = False
        """Whether data and model are there, so that the run can stop after a step, and save."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in stop_signals()}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None or not self.run_has_begun:
            raise KeyboardInterrupt(signal.Signals(number).name)
        self.signal = number
