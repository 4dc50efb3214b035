"""Telling the others when a process ends that has not said good-bye, and why it does."""

import atexit
import os
import sys
from collections.abc import Callable


def at_exit(say: Callable[[BaseException | None], None]) -> Callable[[], None]:
    """Call `say` when this process ends, with the exception that ended it, if one did; gives the way to undo that.

    A forked child that ends is not the end of this process.
    """
    process = os.getpid()

    def call() -> None:
        if os.getpid() == process:
            # Python puts the exception that nobody caught here before it ends.
            say(getattr(sys, "last_value", None))

    atexit.register(call)
    return lambda: atexit.unregister(call)
