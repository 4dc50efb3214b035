"""A process that survives a killed launcher and kills what the workers had started.

A worker dies with its launcher; a process that the worker had started would not. So a bare Python process runs this
file beside the workers. It reads the workers' process groups from its standard input, which only the launcher holds
open: at the end of input the launcher is gone, and it kills the groups. A launcher that ends normally has ended them
itself, and ends this process last.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator

END_S = 5.0
"""How long this process may take to end once it was killed."""


class OrphanKiller:
    """The launcher's side."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def watch(self, process_group: int) -> None:
        """Kill this process group, too, if the launcher is killed."""
        assert self._process.stdin is not None
        # If it was killed itself, the workers still die with their launcher.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{process_group}\n".encode())
            self._process.stdin.flush()


@contextlib.contextmanager
def orphan_killer() -> Generator[OrphanKiller]:
    """Run the process for as long as this launcher works."""
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    # In a session of its own, so that Ctrl-C does not reach it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield OrphanKiller(process)
    finally:
        process.kill()
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            process.communicate(timeout=END_S)


def main() -> None:
    """The other side: wait for the end of input, then kill."""
    for process_group in map(int, sys.stdin.read().split()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process_group, signal.SIGKILL)


if __name__ == "__main__":
    main()
