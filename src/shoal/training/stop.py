"""Ctrl-C, SIGTERM and SIGHUP ask a run to stop after the step in progress; a second one stops it at once.

Before the first step there is nothing to save, and reading data may take long: then the first one stops it at once.
After the last step there is nothing to stop, and the run is completed; a series of runs ends there (`Series`).
"""

import os
import signal
import threading
from types import FrameType
from typing import Any


def stop_signals() -> list[int]:
    """The signals that ask a run to stop: SIGHUP too, unless `nohup` has it ignored."""
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if ignores_hangup else [signal.SIGHUP])]


def interrupted_by(number: int | None) -> KeyboardInterrupt:
    """The exception that ends a command after a signal: it has the signal's name."""
    return KeyboardInterrupt(signal.Signals(number or signal.SIGINT).name)


class StopRequest:
    """Inside this context, the first signal sets `signal`, and the second one raises KeyboardInterrupt.

    Until `run_has_begun` is set, the first one raises it already. It has the name of the signal.

    Only the main thread can handle signals; in other threads this has no effect.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.run_has_begun = False
        """Whether data and model are there, so that the run can stop after a step, and save."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        check_series()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in stop_signals()}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        check_series()

    def _take(self, number: int, frame: FrameType | None) -> None:
        tell_series(number)
        if self.signal or not self.run_has_begun:
            raise interrupted_by(number)
        self.signal = number


class Series:
    """Several runs of one command, one after another: a signal at any moment ends all of them.

    Between runs it raises KeyboardInterrupt, with the name of the signal, at once. During a run it is for the run, and
    KeyboardInterrupt is raised after that, however it ended; at the latest before the next one.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.process = os.getpid()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Series":
        if threading.current_thread() is threading.main_thread():
            _open_series.append(self)
            self._before = {number: signal.signal(number, self._take) for number in stop_signals()}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self in _open_series:
            _open_series.remove(self)

    def _take(self, number: int, frame: FrameType | None) -> None:
        tell_series(number)
        check_series()


_open_series: list[Series] = []


def tell_series(number: int) -> None:
    """Note a signal that a run has taken for itself."""
    for series in _open_series:
        series.signal = series.signal or number


def check_series() -> None:
    """Raise KeyboardInterrupt if a signal has come since the series began of which this process makes a run."""
    for series in _open_series:
        if series.signal and series.process == os.getpid():  # a copy of the process makes a run of its own
            raise interrupted_by(series.signal)
