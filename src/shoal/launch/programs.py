"""Run any program with several workers, here or on other machines: it calls `shoal.join()` to get its group.

shoal launch --workers 2 program.py …
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.comm.liveness.limits import limit_of
from shoal.comm.threads.group import ThreadGroup
from shoal.errors import ConfigError
from shoal.launch import threads
from shoal.launch.hosts.remote import Job, run
from shoal.launch.hosts.ssh import Way, machines_of, passed_on
from shoal.launch.process import processes
from shoal.launch.supervise import Listener, Policy


def by_processes(
    path: str,
    arguments: list[str],
    workers: int,
    group: str = "auto",
    timeout_s: float | None = None,
    profile: bool = False,
    verify: Mapping[str, Any] | None = None,
) -> None:
    """Run the program once per worker, each in its own process; its output is not captured.

    It is profiled, or verified with these arguments of `shoal.verify.worker.verified`, or neither.
    """
    _read(path)
    settings = {"kind": "program", "path": path, "arguments": arguments, "group": group, "profile": profile}
    settings |= {} if verify is None else {"verify": dict(verify)}
    settings |= {} if timeout_s is None else {"timeout_s": timeout_s}
    policy = Policy.within(limit_of(timeout_s))
    listener = _WithoutProfile() if profile else None
    processes.run(processes.ProcessTask(settings), workers, listener, policy)


def on_hosts(
    words: list[str],
    hosts: Sequence[str],
    workers: int,
    way: Way,
    master: str = "",
    group: str = "auto",
    timeout_s: float | None = None,
) -> None:
    """Run a Python file, or a command `shoal …`, in so many workers on each of these machines."""
    program, *arguments = words
    if program == "shoal":
        settings = {"kind": "command", "arguments": arguments}
    else:
        settings = {"kind": "program", "path": program, "arguments": arguments, "group": group}
    settings |= {} if timeout_s is None else {"timeout_s": timeout_s}
    job = Job(processes.ProcessTask(settings), passed_on(os.environ), master)
    run(job, machines_of(hosts, workers, way), policy=Policy.within(limit_of(timeout_s)))


class _WithoutProfile(Listener):
    """Of a program that fails."""

    def advice(self) -> list[str]:
        """One sentence."""
        return ["No profile was written."]


def by_threads(path: str, arguments: list[str], workers: int, timeout_s: float | None = None) -> None:
    """Run the program once per worker, each in its own thread and with its own global names.

    What belongs to the process (`sys.argv`, the working directory, torch's settings) is shared by all.
    """
    code = compile(_read(path), path, "exec")

    def work(group: ThreadGroup) -> None:
        try:
            exec(code, {"__name__": "__main__", "__file__": path, "__builtins__": __builtins__})
        except SystemExit as error:
            if error.code:
                raise

    before = sys.argv, sys.path
    sys.argv, sys.path = [path, *arguments], [os.path.dirname(os.path.abspath(path)), *sys.path]
    try:
        threads.run(workers, work, limit_of(timeout_s))
    finally:
        sys.argv, sys.path = before


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the program {path}: {error.strerror}") from None
