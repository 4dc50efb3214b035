"""Workers as processes of this machine.

The launcher holds the store where workers meet, on loopback and on a port that the system chose, so it survives the
death of any worker. Workers run in sessions of their own: Ctrl-C reaches the launcher alone, which passes it on once,
and killing a worker's process group ends whatever it started. A worker dies with its launcher
(`child.die_with_parent`), and so does what it started (`orphans.py`).
Workers are copies of a template that has loaded torch once (`template.py`), where the system can make such copies. The
workers of `shoal train` are copies of the command itself (`forks.py`), unless a thread runs in it or it has used a GPU.
"""

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, final

from shoal.comm.liveness.watch import ProcessWatch
from shoal.comm.rendezvous.secret import inheritable, new_secret, without_secret
from shoal.comm.rendezvous.store import listen, serve
from shoal.config.checks import check_memory
from shoal.launch.cores import threads_per_worker
from shoal.launch.handles import WorkerHandle, end_all, start
from shoal.launch.hangs.board import VARIABLE as BOARD_VARIABLE
from shoal.launch.hangs.board import board_for
from shoal.launch.process.child import ChildProcess, start_program
from shoal.launch.process.orphans import OrphanKiller, orphan_killer
from shoal.launch.process.template import MakesCopies, template_for
from shoal.launch.supervise import Listener, Policy, SignalRelay, supervise

STORE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ProcessTask:
    """The task of every worker process."""

    settings: dict[str, Any]
    """`kind`, and what that kind of task needs (`worker_tasks.TASKS`): data that JSON can hold."""
    keeps_output: bool = False
    """Whether the listener gets what workers print; otherwise it goes where the launcher's own output goes."""
    threads: int = 0
    """Threads of each worker; 0: its part of the cores, unless the environment says something else."""


def run(
    task: ProcessTask, workers: int, listener: Listener | None = None, policy: Policy | None = None
) -> None:
    """Run a task in one process per worker; raise the first failure."""
    environment = environment_for(task, workers)
    with template_for(interpreter(), environment, workers) as template:
        run_by(partial(start_worker, task, environment, template), workers, listener, policy)


@dataclass(frozen=True)
class Launch:
    """What every worker process of a launch gets."""

    workers: int
    """On all machines."""
    port: int
    """Of the store where workers meet."""
    orphans: OrphanKiller
    secret: bytes = field(repr=False)
    board: str = ""
    """Where workers find the board (`hangs/board.py`); empty on systems without one."""
    host: str = "127.0.0.1"
    """Of the store."""
    first: int = 0
    """The lowest rank on this machine."""
    here: int | None = None
    """The number of workers on this machine; None: all."""

    def variables(self, rank: int) -> dict[str, str]:
        """The environment that gives a worker its place in the world, in the names of torchrun."""
        return {
            **({BOARD_VARIABLE: self.board} if self.board else {}),
            "RANK": str(rank),
            "WORLD_SIZE": str(self.workers),
            "LOCAL_RANK": str(rank - self.first),
            "LOCAL_WORLD_SIZE": str(self.here or self.workers),
            "MASTER_ADDR": self.host,
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # torch's name for: the launcher holds the store
        }


def run_by(
    begin: Callable[[Launch, int], "ProcessHandle"],
    workers: int,
    listener: Listener | None = None,
    policy: Policy | None = None,
) -> None:
    """Start the process of each rank by `begin(launch, rank)`, and supervise them; raise the first failure."""
    check_memory(workers)
    with (
        listen("127.0.0.1", 0) as server,
        SignalRelay() as signals,
        orphan_killer() as orphans,
        board_for(workers) as board,
    ):
        port, path = server.getsockname()[1], board.path() if board else ""
        launch = Launch(workers, port, orphans, new_secret(), path)
        handles = start([partial(begin, launch)] * workers)
        # After the last fork: torch's store has a thread, and what that locks at the moment of a fork stays locked in
        # the copy for ever. Workers that connect before wait in the queue of the socket.
        try:
            store = serve(server, STORE_TIMEOUT_S)
        except BaseException:
            end_all(handles)
            raise
        supervise(handles, policy or Policy(), listener, signals, board)
    del store


def start_worker(
    task: ProcessTask,
    environment: Mapping[str, str],
    template: MakesCopies | None,
    launch: Launch,
    rank: int,
    outputs: Mapping[int, int] | None = None,
) -> "ProcessHandle":
    """Start a worker: a copy of the template, or a new interpreter.

    Its task goes through standard input, the secret of the run through a pipe, its reports come through another.
    `outputs` are descriptors for its standard output and error.
    """
    environment = {**environment, **launch.variables(rank)}
    with contextlib.ExitStack() as undo, inheritable(launch.secret) as secret:
        read_end, write_end = os.pipe()
        undo.callback(os.close, read_end)
        keeps_log = task.keeps_output and outputs is None
        log = undo.enter_context(tempfile.TemporaryFile()) if keeps_log else None
        settings = undo.enter_context(_file_of_settings())
        given = {**task.settings, "import_path": _import_path()}
        if template is not None:
            given["environment"] = environment
        settings.write(json.dumps(given).encode())
        settings.seek(0)
        streams = {0: settings.fileno(), **(outputs or {})}
        streams |= {} if log is None else dict.fromkeys((1, 2), log.fileno())
        keeps = [write_end, secret]
        try:
            copied = [streams.get(n, n) for n in range(3)]
            process = None if template is None else template.start(copied, keeps)
            if process is None:
                settings.seek(0)  # a copy that came to nothing may have read it
                program = ["shoal.launch.process.worker_main", *map(str, (os.getpid(), *keeps))]
                process = start_program([*interpreter(), *program], streams, environment, keeps)
        finally:
            os.close(write_end)
        settings.close()
        undo.pop_all()
    launch.orphans.watch(process.pid)
    return ProcessHandle(rank, read_end, process, log)


def _file_of_settings() -> IO[bytes]:
    """A file for one worker's task.

    A write into a pipe would wait for a worker that is stopped. In memory, because the environment may hold secrets.
    """
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("shoal-task"), "wb+")
    return tempfile.TemporaryFile()


def environment_for(task: ProcessTask, workers: int) -> dict[str, str]:
    """The environment of the workers of one machine, but for their places."""
    environment = without_secret(os.environ)
    # In the environment, because some libraries read it there once, when they are loaded.
    if task.threads:
        environment["OMP_NUM_THREADS"] = str(task.threads)
    environment.setdefault("OMP_NUM_THREADS", str(threads_per_worker(workers)))
    return environment


def _import_path() -> list[str]:
    return [entry for entry in sys.path if isinstance(entry, str)]  # pyright: ignore[reportUnnecessaryIsInstance]


def interpreter() -> list[str]:
    """Python with the import path of this process, in its order; the next word names the module whose `main` it runs.

    `python -m` would put the current directory first, and a `queue.py` there would be imported by every worker.
    """
    isolated = {"-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    flags = [flag for flag, is_set in isolated.items() if is_set]
    return [sys.executable, "-P", *flags, "-c", BOOT, json.dumps(_import_path())]


BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from importlib import import_module; raise SystemExit(import_module(sys.argv[2]).main())"
)


@final
class ProcessHandle(WorkerHandle):
    """A process and all that it has started: they share its process group."""

    def __init__(self, rank: int, pipe: int, process: ChildProcess, log: IO[bytes] | None) -> None:
        super().__init__(rank, pipe)
        self._process, self._log, self._watch = process, log, ProcessWatch()
        self._end = process.end()  # without it, the end is seen at the next look

    def descriptors(self) -> list[int]:
        """The pipe, and what becomes readable when the process ends."""
        return super().descriptors() + ([] if self._end is None else [self._end])

    def poll(self) -> int | None:
        """The exit code, below 0 for a signal."""
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        """Send a signal to the process group; to the process alone, if it was stopped before it made its group."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the process group, also if it is stopped."""
        self.send_signal(signal.SIGKILL)

    def stopped_s(self) -> float:
        """As the system says."""
        return self._watch.stopped_s(self._process.pid)

    def name(self) -> str:
        """Its rank and its process number."""
        return f"rank {self.rank} (process {self._process.pid})"

    def close(self, wait_s: float) -> bool:
        """Wait for the process and take its output."""
        self._process.wait(wait_s)
        self.kill()  # what it forked between the first signal and its end
        has_ended = super().close(wait_s)
        self._watch.close()
        if self._end is not None:
            os.close(self._end)
        if self._log is not None:
            self._log.seek(0)
            self.output = self._log.read()
            self._log.close()
        return has_ended
