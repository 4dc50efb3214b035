"""The main program of a worker process: `python -m shoal.launch.worker_main`, started by `processes.ProcessPlace`.

Its task comes through standard input, its place in the world from the environment, and its reports go into the pipe
whose number it is given.
"""

import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.launch.reports import Reporter

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends. Linux only; elsewhere a no-op."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had already ended
            os._exit(1)


def main() -> int:
    """Do the task and report how it went; return the exit code."""
    parent, descriptor = map(int, sys.argv[1:])
    die_with_parent(parent)
    # SIGINT before the work begins exits silently.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # A crash in native code then prints the Python stack of its thread.
    faulthandler.enable(all_threads=False)
    task: dict[str, Any] = json.loads(sys.stdin.read())

    from shoal.launch.failure import failure_of
    from shoal.launch.reports import Reporter

    reporter = Reporter(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        TASKS[task["kind"]](reporter, task)
    except SystemExit as error:
        if not error.code:
            reporter.finished()
            return 0
        failure = failure_of(error)
    except BaseException as error:  # whatever it is, the launcher needs to know
        failure = failure_of(error)
    else:
        return 0
    reporter.failed(failure)
    if (
        task["kind"] == "train"
    ):  # into this worker's log; a program prints to the terminal, where one box is enough
        sys.stderr.write(failure.traceback)
    return failure.exit_code


def _train(reporter: "Reporter", task: dict[str, Any]) -> None:
    from pathlib import Path

    from shoal.comm.join import join
    from shoal.config.plain import from_plain
    from shoal.events.folder import RunFolder
    from shoal.launch.closing_group import closing_group
    from shoal.launch.facts import facts_of
    from shoal.launch.reports import ReportingObserver
    from shoal.train import worker
    from shoal.train.device import group_kind, take_device
    from shoal.train.observer import Silent

    warnings.showwarning = reporter.warned
    config = from_plain(task["config"])
    kind = group_kind(config, take_device(config))
    with closing_group(join(kind=kind, facts=facts_of(config))) as group:
        observer = ReportingObserver(reporter, time.monotonic) if group.rank == 0 else Silent()
        if task["resumed"]:
            result = worker.resume(RunFolder(Path(task["resumed"])), config, observer, group)
        else:
            result = worker.run(config, observer, group)
        reporter.finished(result)


def _program(reporter: "Reporter", task: dict[str, Any]) -> None:
    import runpy

    from shoal.comm.assigned_group import Assignment, assigned

    path: str = task["path"]
    sys.argv = [path, *task["arguments"]]
    sys.path[0] = os.path.dirname(os.path.abspath(path))  # as when Python itself runs a file
    with assigned(Assignment(kind=task["group"])):
        runpy.run_path(path, run_name="__main__")
    reporter.finished()


TASKS = {"train": _train, "program": _program}

if __name__ == "__main__":
    raise SystemExit(main())
