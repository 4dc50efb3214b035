"""A worker process of the `processes` launcher: `python -m shoal.launch.member`, started by it and by nobody else.

Its task and settings come on standard input, its place in the world in the environment, and what it has to tell goes
into the pipe whose number it is given.
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
    from shoal.launch.messages import Teller

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Be killed when the thread that started us ends, whatever ended it: no orphans. Linux only; elsewhere a no-op."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was already gone when we asked
            os._exit(1)


def main() -> int:
    """Work, and tell how it went; the exit code is what the failure asks for."""
    parent, descriptor = map(int, sys.argv[1:])
    die_with_parent(parent)
    # Whoever is interrupted before its work begins ends without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # A crash in native code then leaves the Python stack of its thread among the worker's last words.
    faulthandler.enable(all_threads=False)
    task: dict[str, Any] = json.loads(sys.stdin.read())

    from shoal.launch.failure import failure_of
    from shoal.launch.messages import Teller

    teller = Teller(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        TASKS[task["kind"]](teller, task)
    except SystemExit as error:
        if not error.code:
            teller.finished()
            return 0
        failure = failure_of(error)
    except BaseException as error:  # whatever it is, the launcher must hear of it
        failure = failure_of(error)
    else:
        return 0
    teller.failed(failure)
    if (
        task["kind"] == "train"
    ):  # for this worker's log; a program's output is the terminal, where one box is enough
        sys.stderr.write(failure.traceback)
    return failure.exit_code


def _train(teller: "Teller", task: dict[str, Any]) -> None:
    from pathlib import Path

    from shoal.comm.join import join
    from shoal.config.plain import from_plain
    from shoal.events.folder import RunFolder
    from shoal.launch.facts import facts_of
    from shoal.launch.membership import membership
    from shoal.launch.messages import PipeObserver
    from shoal.train import worker
    from shoal.train.device import group_kind, take_device
    from shoal.train.observer import Silent

    warnings.showwarning = teller.warned
    config = from_plain(task["config"])
    kind = group_kind(config, take_device(config))
    with membership(join(kind=kind, facts=facts_of(config))) as group:
        observer = PipeObserver(teller, time.monotonic) if group.rank == 0 else Silent()
        if task["resumed"]:
            result = worker.resume(RunFolder(Path(task["resumed"])), config, observer, group)
        else:
            result = worker.run(config, observer, group)
        teller.finished(result)


def _program(teller: "Teller", task: dict[str, Any]) -> None:
    import runpy

    from shoal.comm.assigned_group import Assignment, assigned

    path: str = task["path"]
    sys.argv = [path, *task["arguments"]]
    sys.path[0] = os.path.dirname(os.path.abspath(path))  # as when Python itself runs a file
    with assigned(Assignment(kind=task["group"])):
        runpy.run_path(path, run_name="__main__")
    teller.finished()


TASKS = {"train": _train, "program": _program}

if __name__ == "__main__":
    raise SystemExit(main())
