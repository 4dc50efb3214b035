"""The first lines of the command `shoal`: from here on Ctrl-C is a word and an exit code, never a traceback.

Loading `main` takes a few tenths of a second.
"""

import signal

from shoal.cli.leave import leave


def main() -> int:
    """Load the command line and run it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from shoal.cli.main import main as run

    try:
        return run()
    finally:  # Python gives its handlers up while it exits: a late Ctrl-C would take the place of the exit code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
