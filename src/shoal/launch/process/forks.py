"""Workers as copies of this process.

Copies of a program or a notebook have its objects as they are, without pickling. They compute with one thread: OpenMP's
threads do not survive a fork, and a second one would wait for them for ever. For the same reason there is no forking
once this process has used a GPU.

Copies of a launcher that has loaded torch and computed nothing, `fresh` ones, need not load it again. They have as many
threads as new interpreters.
"""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from functools import partial

import torch

from shoal.comm.rendezvous.secret import inheritable, receive, without_secret
from shoal.errors import ConfigError
from shoal.launch.failure import failure_of
from shoal.launch.process.child import ChildProcess, die_with_parent, exit_at_once, forget_parent
from shoal.launch.process.processes import Launch, ProcessHandle, run_by
from shoal.launch.process.worker_main import draw_anew, name_worker
from shoal.launch.reports import Reporter
from shoal.launch.supervise import Listener, Policy
from shoal.training.stop import stop_signals

Work = Callable[[Reporter], None]


def is_alone() -> bool:
    """Whether copies of this process lack nothing: no other thread runs, no GPU is in use, and the system is Linux."""
    return sys.platform == "linux" and threading.active_count() == 1 and not torch.cuda.is_initialized()


def run(
    work: Work,
    workers: int,
    listener: Listener | None = None,
    policy: Policy | None = None,
    fresh: bool = False,
) -> None:
    """Run `work(reporter)` in one copy of this process per worker; raise the first failure.

    `fresh`: this process has computed nothing, so its copies compute with torch's number of threads.
    """
    if torch.cuda.is_initialized():
        raise ConfigError(
            "this process has used the GPU, so its workers cannot be copies of it",
            "Use launcher='threads', or start a program with `shoal launch`.",
        )
    run_by(partial(_fork, work, fresh), workers, listener, policy)


def _fork(task: Work, fresh: bool, launch: Launch, rank: int) -> ProcessHandle:
    with contextlib.ExitStack() as undo, inheritable(launch.secret) as secret:
        read_end, write_end = os.pipe()
        undo.callback(os.close, read_end)
        undo.callback(os.close, write_end)
        log = undo.enter_context(tempfile.TemporaryFile())
        parent = os.getpid()
        # A line in a buffer would be printed by both processes.
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            # Nothing of the parent's may run in the copy after this, whatever happens.
            try:
                forget_parent()
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                launch.orphans.leave_to_launcher()
                _become_worker(parent, secret, launch.variables(rank), fresh)
                exit_at_once(_worked(task, Reporter(write_end)))
            finally:
                os._exit(1)
        undo.pop_all()
        os.close(write_end)
    launch.orphans.watch(pid)
    return ProcessHandle(rank, read_end, ChildProcess(pid), log)


def _become_worker(parent: int, secret: int, variables: dict[str, str], fresh: bool) -> None:
    os.setsid()
    die_with_parent(parent)
    for number in (*stop_signals(), signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)
    for name in os.environ.keys() - without_secret(os.environ).keys():
        del os.environ[name]
    os.environ.update(variables)
    # What Python prints goes to the log; a notebook's own streams send it through threads that are not here.
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    name_worker()
    if fresh:
        draw_anew()
    else:
        torch.set_num_threads(1)
    receive(secret)


def _worked(task: Work, reporter: Reporter) -> int:
    try:
        task(reporter)
        return 0
    except BaseException as error:  # whatever it is, the launcher needs to know
        failure = failure_of(error)
        reporter.failed(failure)
        traceback.print_exception(error)
        return failure.exit_code
