"""Ctrl-C while torch loads, where Python drops the exception, and as an exit code. Needs nothing else of shoal.

Loading torch takes seconds. A KeyboardInterrupt in the middle of it may be lost, because native code and `except`
clauses swallow it, and nothing needs to be cleaned up yet.
"""

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
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


@contextlib.contextmanager
def repeating_lost_interrupts() -> Generator[None]:
    """Within this context the signal is sent again if Python drops the KeyboardInterrupt that its handler raised.

    Python only prints exceptions that leave `__del__` or a callback of the garbage collector or of a weak reference,
    and a signal may arrive in any of them.
    """
    print_it, ended = sys.unraisablehook, threading.Event()

    def send_again(number: int) -> None:
        time.sleep(0.01)  # until the hook has returned: there it would be lost once more
        if not ended.is_set():
            signal.pthread_kill(_main_thread(), number)

    def hook(lost: "sys.UnraisableHookArgs") -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt) and not ended.is_set():
            # `threading.Thread` takes a lock that the interrupted code may hold.
            _thread.start_new_thread(send_again, (_signal_of(lost.exc_value),))
        else:
            print_it(lost)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        ended.set()
        sys.unraisablehook = print_it


def exit_code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a command that was interrupted: by Ctrl-C, or by the signal that the exception names."""
    return 128 + _signal_of(interrupt)


def _signal_of(interrupt: KeyboardInterrupt) -> int:
    return signal.Signals.__members__.get(str(interrupt), signal.SIGINT)


def _main_thread() -> int:
    ident = threading.main_thread().ident
    assert ident is not None, "the main thread runs"
    return ident


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "<module>" and module.partition(".")[0] == "torch":
            leave(number, frame)
        frame = frame.f_back
    raise KeyboardInterrupt
