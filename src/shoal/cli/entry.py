"""The first lines of the command `shoal`: from here on Ctrl-C is a word and an exit code, never a traceback.

Loading `main` takes a few tenths of a second.
"""

import signal
from typing import NoReturn

from shoal.cli.interrupts import leave


def main() -> NoReturn:
    """Load the command line, run it and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from shoal.cli.main import main as run
    from shoal.launch.process.child import exit_at_once

    code = run()
    # The command is over: a second signal to stop would take the place of its exit code.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    exit_at_once(code)
