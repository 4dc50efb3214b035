"""The first lines of the command `shoal`: from here on Ctrl-C is a word and an exit code, never a traceback.

Loading `main` takes a few tenths of a second, loading torch takes seconds. A KeyboardInterrupt in the middle of that
may be lost, because native code and `except` clauses swallow it. Nothing needs to be cleaned up yet, so the process
ends.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Generator
from types import FrameType
from typing import NoReturn


def main() -> int:
    """Load the command line and run it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from shoal.cli.main import main as run

    code = run()
    # Python gives its handlers up while it exits: a late Ctrl-C would take the place of the exit code.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if threading.active_count() > 1:
        _exit_at_once(code)
    return code


def _exit_at_once(code: int) -> NoReturn:
    """Exit without Python's last phase: a thread whose native call returns in that phase aborts the process."""
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


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
