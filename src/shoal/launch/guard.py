"""A process that outlives a killed launcher, to end what the workers had started.

A worker dies with its launcher; a process that the worker had started would not. So beside the workers a bare Python
runs this file. It reads the workers' process groups from its standard input, which only the launcher holds open: when
that ends, the launcher is gone, and the groups are killed. A launcher that ends in good order has ended them by itself,
and ends its guard last.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator


class Guard:
    """The launcher's side."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def take(self, group: int) -> None:
        """Watch over one more process group."""
        assert self._process.stdin is not None
        with contextlib.suppress(
            BrokenPipeError
        ):  # somebody killed it; the workers still die with their launcher
            self._process.stdin.write(f"{group}\n".encode())
            self._process.stdin.flush()


@contextlib.contextmanager
def guard() -> Generator[Guard]:
    """A guard for as long as this launcher does its work."""
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    # In a session of its own, so that Ctrl-C does not reach it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield Guard(process)
    finally:
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()


def main() -> None:
    """The guard's side: wait for the end of input, then kill."""
    for group in map(int, sys.stdin.read().split()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
