"""A process that survives a killed launcher and kills what the workers had started.

A worker dies with its launcher; a process that the worker had started would not. So a bare Python process runs this
file beside the workers. It reads the workers' process groups from its standard input, which only the launcher holds
open: at the end of input the launcher is gone, and it kills the groups. If it is stopped then, the kernel continues it.
A launcher that ends normally has ended the groups itself, and ends this process last.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Generator

END_S = 5.0
"""How long this process may take to end once it was killed."""


class OrphanKiller:
    """The launcher's side."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid, self._pipe = pid, pipe

    def watch(self, process_group: int) -> None:
        """Kill this process group, too, if the launcher is killed."""
        # If it was killed itself, the workers still die with their launcher.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, f"{process_group}\n".encode())

    def leave_to_launcher(self) -> None:
        """In a copy of the launcher: close the pipe, which what this copy starts would otherwise hold open."""
        os.close(self._pipe)


@contextlib.contextmanager
def orphan_killer() -> Generator[OrphanKiller]:
    """Run the process for as long as this launcher works."""
    from shoal.launch.process.child import start_program  # the bare process has no packages

    command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    read_end, write_end = os.pipe()
    try:
        # In a session of its own and with SIGINT blocked: Ctrl-C neither ends it nor makes it print.
        process = start_program(command, {0: read_end}, parents_death=signal.SIGCONT)
        try:
            yield OrphanKiller(process.pid, write_end)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(END_S)
    finally:
        os.close(read_end)
        os.close(write_end)


def main() -> None:
    """The other side: wait for the end of input, then kill."""
    for process_group in map(int, sys.stdin.read().split()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process_group, signal.SIGKILL)


if __name__ == "__main__":
    main()
