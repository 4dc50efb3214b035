"""The reports of a worker process to its launcher: lines of JSON in a pipe."""

import contextlib
import json
import os
import select
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.launch.failure import Failure
from shoal.training.evaluation import Metrics
from shoal.training.observer import Observer
from shoal.training.progress import Progress
from shoal.training.result import Result

STEPS_EVERY_S = 0.1
"""The shortest time between two reports of steps: the launcher draws no faster."""

Report = dict[str, Any]


class Reporter:
    """The worker's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # processes that the worker starts report nothing
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, **report: Any) -> None:
        """Send one report. A launcher that is gone is not an error: it takes this worker with it."""
        data = memoryview(json.dumps(report).encode() + b"\n")
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._descriptor, data) :]

    def has_room(self) -> bool:
        """Whether a short report can be sent without waiting; not if the launcher has been stopped for a while."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def failed(self, failure: Failure) -> None:
        """Report what went wrong, and where."""
        self.send(kind="failed", failure=asdict(failure))

    def finished(self, result: Result | None = None) -> None:
        """Report that the work is done; how the process ends after that does not matter."""
        self.send(kind="finished", result=result and asdict(result))

    def warned(self, message: Warning | str, category: type[Warning], *_: object) -> None:
        """Report a warning (a replacement for `warnings.showwarning`)."""
        self.send(kind="warned", category=category.__name__, text=str(message))


class ReportingObserver:
    """Reports to the launcher what a worker calls its observer with; steps at intervals, or `every_step`."""

    def __init__(self, reporter: Reporter, clock: Callable[[], float], every_step: bool = False) -> None:
        self._reporter = reporter
        self._clock = clock
        self.wants_every_step = every_step
        self._last_step = 0.0

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Everything is built; the first step follows."""
        about = {"folder": str(folder.path), "total_steps": total_steps, "device": device}
        self._reporter.send(kind="started", progress=asdict(progress), **about)

    def stepped(self, progress: Progress, loss: float) -> None:
        """A step; left out soon after the last one, and rather than wait for a launcher that is stopped."""
        now = self._clock()
        if self.wants_every_step or (now - self._last_step >= STEPS_EVERY_S and self._reporter.has_room()):
            self._last_step = now
            self._reporter.send(kind="stepped", progress=asdict(progress), loss=loss)

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """The end of an epoch."""
        values = metrics and metrics._asdict()
        self._reporter.send(kind="validated", progress=asdict(progress), metrics=values)

    def saved(self, progress: Progress) -> None:
        """A checkpoint."""
        self._reporter.send(kind="saved", progress=asdict(progress))

    def evaluating(self, samples: int) -> None:
        """The beginning of the evaluation on the test set."""
        self._reporter.send(kind="evaluating", samples=samples)


def replay(report: Report, config: RunConfig, observer: Observer) -> None:
    """Call an observer of the launcher as the worker called its `ReportingObserver`."""
    kind = report["kind"]
    if kind == "evaluating":
        observer.evaluating(report["samples"])
        return
    progress = Progress(**report["progress"])
    if kind == "started":
        folder = RunFolder(Path(report["folder"]))
        observer.started(config, folder, progress, report["total_steps"], report["device"])
    elif kind == "stepped":
        observer.stepped(progress, report["loss"])
    elif kind == "validated":
        metrics = report["metrics"]
        observer.validated(progress, Metrics(**metrics) if metrics else None)
    elif kind == "saved":
        observer.saved(progress)
