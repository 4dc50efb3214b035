"""Any program with several workers on this machine: it calls `shoal.join()` and finds itself one of them.

shoal launch --workers 2 program.py …
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from shoal.comm.assigned_group import Assignment, assigned
from shoal.comm.threads import ThreadGroup
from shoal.errors import ConfigError
from shoal.launch import processes, threads
from shoal.launch.members import Task
from shoal.launch.messages import Message


def by_processes(path: str, arguments: list[str], workers: int, group: str = "auto") -> None:
    """Run the program once per worker, each in a process of its own; what it prints is printed."""
    _check(path)
    settings = {"kind": "program", "path": path, "arguments": arguments, "group": group}
    processes.run(Task(settings, workers, keeps_output=False), _Nobody())


def by_threads(path: str, arguments: list[str], workers: int) -> None:
    """Run the program once per worker, each in a thread and with global names of its own.

    What a program changes in the process (`sys.argv`, the working directory, torch's settings) it changes for all.
    """
    code = compile(_check(path), path, "exec")

    def work(group: ThreadGroup) -> None:
        with assigned(Assignment(group)):
            try:
                exec(code, {"__name__": "__main__", "__file__": path, "__builtins__": __builtins__})
            except SystemExit as error:
                if error.code:
                    raise

    before = sys.argv, sys.path
    sys.argv, sys.path = [path, *arguments], [os.path.dirname(os.path.abspath(path)), *sys.path]
    try:
        threads.run(workers, work)
    finally:
        sys.argv, sys.path = before


class _Nobody:
    """Programs speak for themselves."""

    def heard(self, rank: int, message: Message) -> None:
        """Nothing."""

    def printed(self, rank: int, output: bytes) -> None:
        """Nothing."""

    def advice(self) -> Sequence[str]:
        """None."""
        return []


def _check(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the program {path}: {error.strerror}") from None
