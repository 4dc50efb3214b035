"""Ctrl-C before anything was started or written: the process ends at once. Needs nothing else of shoal.

Loading torch takes seconds. A KeyboardInterrupt in the middle of it may be lost, because native code and `except`
clauses swallow it, and nothing needs to be cleaned up yet.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from types import FrameType


def leave(number: int, frame: FrameType | None) -> None:
    """A handler of SIGINT: end the process, before anything was started or written."""
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(128 + number)


@contextlib.contextmanager
def ending_while_torch_loads() -> Generator[None]:
    """Within this context Ctrl-C ends the process while torch loads, and raises KeyboardInterrupt at other times.

    Only the main thread can handle signals; a handler that a program has set stays.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    applies = in_main_thread and before in (signal.default_int_handler, leave)
    if applies:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if applies:
            signal.signal(signal.SIGINT, before)


def exit_code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a command that was interrupted: by Ctrl-C, or by the signal that the exception names."""
    return 128 + signal.Signals.__members__.get(str(interrupt), signal.SIGINT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "<module>" and module.partition(".")[0] == "torch":
            leave(number, frame)
        frame = frame.f_back
    raise KeyboardInterrupt
