"""The tasks of a worker process: train, run a program, or run a command of ours."""

import contextlib
import os
import runpy
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.comm.assigned_group import Assignment, assigned
from shoal.comm.group import BUSY_S, Group
from shoal.comm.liveness.limits import VARIABLE
from shoal.config.custom import no_exit
from shoal.config.schema import RunConfig
from shoal.config.write import from_plain
from shoal.errors import ShoalError
from shoal.events.folder import RunFolder
from shoal.launch.hangs.watched import answering, watched
from shoal.launch.one_worker import joined_group
from shoal.launch.reports import Reporter, ReportingObserver
from shoal.training import worker
from shoal.training.observer import Silent
from shoal.training.result import Result


def _train(reporter: Reporter, task: dict[str, Any]) -> None:
    warnings.showwarning = reporter.warned
    answering(reporter)
    config, resumed = from_plain(task["config"]), task["resumed"] and RunFolder(Path(task["resumed"]))
    with no_exit("a function of your own"), joined_group(config) as group:
        observer = (
            ReportingObserver(reporter, time.monotonic, task["every_step"]) if group.rank == 0 else Silent()
        )
        result = worker.run(config, observer, group, resumed or None)
        if result.status == "completed":
            result = _train_then([from_plain(each) for each in task["then"]], group, result)
        reporter.finished(result)


def _train_then(configs: Sequence[RunConfig], group: Group, first: Result) -> Result:
    """Make other runs with the same workers. If one fails, its folder shows that; a stop of one is a stop of all."""
    with contextlib.suppress(ShoalError):
        for config in configs:
            if config.launch.workers == 1 and group.size > 1:
                group.beat(BUSY_S)
                if group.rank == 0:
                    worker.run(config, Silent())
                group.barrier().wait()
                continue
            made = worker.run(config, Silent(), group)
            if made.status != "completed":
                return replace(first, status=made.status, stopped_by=made.stopped_by)
    return first


def _seen(task: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
    """The program is profiled or verified, or neither."""
    if task.get("profile"):
        from shoal.profile.profile import profiled  # it loads what reports need

        return profiled(sys.argv)
    if task.get("verify"):
        from shoal.verify.worker import verified

        return verified(**task["verify"])
    return contextlib.nullcontext()


def _program(reporter: Reporter, task: dict[str, Any]) -> None:
    path: str = task["path"]
    sys.argv = [path, *task["arguments"]]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # as when Python itself runs a file
    if "timeout_s" in task:
        os.environ[VARIABLE] = str(task["timeout_s"])  # for every join and wrapper that gives no limit itself
    with assigned(Assignment(kind=task["group"])), _seen(task), watched(reporter):
        runpy.run_path(path, run_name="__main__")
    reporter.finished()


def _command(reporter: Reporter, task: dict[str, Any]) -> None:
    """A command of ours: it shows its own errors, and its exit code is all that the launcher gets."""
    del reporter
    if "timeout_s" in task:
        os.environ[VARIABLE] = str(task["timeout_s"])
    sys.argv = ["shoal", *task["arguments"]]
    runpy.run_module("shoal", run_name="__main__")


TASKS: dict[str, Callable[[Reporter, dict[str, Any]], None]] = {
    "train": _train,
    "program": _program,
    "command": _command,
}
