"""One worker process: how it is started, and how it is ended with all that it has started."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, Any

from shoal.launch.failure import Failure


@dataclass(frozen=True)
class Task:
    """What every worker process is to do."""

    settings: dict[str, Any]
    """`kind`, and what that kind of task needs (`member.TASKS`)."""
    workers: int
    keeps_output: bool
    """Whether what workers print is kept for the listener, or goes where the launcher's own output goes."""
    threads: int = 0
    """Threads of each worker; 0: its part of the cores, unless the environment says something else."""


@dataclass
class Member:
    """One worker process, as the launcher sees it."""

    rank: int
    process: subprocess.Popen[bytes]
    pipe: int
    log: IO[bytes] | None
    unread: bytes = b""
    failure: Failure | None = None
    finished: bool = False
    over: bool = False

    def send(self, number: int) -> None:
        """A signal to the worker and to whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def output(self) -> bytes:
        """What the worker has printed, where that is kept."""
        if self.log is None:
            return b""
        self.log.seek(0)
        return self.log.read()


def start(task: Task, rank: int, port: int) -> Member:
    """Start the process of one rank; it meets the others in the store on this port."""
    environment = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(task.workers),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(task.workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # torch's word for: the launcher holds the store
    }
    # In the environment, because some libraries look there once, when they are loaded, and nowhere else.
    if task.threads:
        environment["OMP_NUM_THREADS"] = str(task.threads)
    environment.setdefault("OMP_NUM_THREADS", str(threads_per_worker(task.workers)))
    with contextlib.ExitStack() as undo:
        read_end, write_end = os.pipe()
        undo.callback(os.close, read_end)
        log = undo.enter_context(tempfile.TemporaryFile()) if task.keeps_output else None
        # A Ctrl-C that comes while Python starts would be a traceback; the worker unblocks it once it can be silent.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "shoal.launch.member", str(os.getpid()), str(write_end)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[write_end],
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(write_end)
        undo.pop_all()
    os.set_blocking(read_end, False)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as settings:
        settings.write(json.dumps(task.settings).encode())
    return Member(rank, process, read_end, log)


def threads_per_worker(workers: int) -> int:
    """Workers share the cores; more threads than cores would only get in each other's way."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)
