"""The first lines of the command `shoal`: from here on Ctrl-C is a word and an exit code, never a traceback.

Loading `main` takes a few tenths of a second.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import NoReturn

from shoal.cli.interrupts import leave


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
