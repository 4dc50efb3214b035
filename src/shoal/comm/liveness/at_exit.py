"""Reports the end of a process that has not closed its groups, and its cause."""

import atexit
import os
import sys
from collections.abc import Callable


def at_exit(report: Callable[[BaseException | None], None]) -> Callable[[], None]:
    """Call `report` when this process ends, with the exception that ended it, if any; returns a way to cancel that.

    The end of a forked child does not count.
    """
    process = os.getpid()

    def call() -> None:
        if os.getpid() == process:
            # Python stores the uncaught exception here before it exits.
            report(getattr(sys, "last_value", None))

    atexit.register(call)
    return lambda: atexit.unregister(call)
