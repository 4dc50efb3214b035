"""What a worker process tells its launcher: lines of JSON on a pipe, read as they come."""

import contextlib
import json
import os
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shoal.config.schema import RunConfig
from shoal.errors import MemberError, ShoalError
from shoal.events.folder import RunFolder
from shoal.train.evaluate import Metrics
from shoal.train.observer import Observer
from shoal.train.progress import Progress
from shoal.train.result import Result

STEPS_EVERY_S = 0.1
"""How often at most a worker tells of its steps: the launcher draws no faster."""


class PipeObserver:
    """Tells a launcher, through a pipe, what an observer would be told."""

    def __init__(self, descriptor: int, clock: Any) -> None:
        self._descriptor = descriptor
        self._clock = clock
        self._last_step_told = 0.0

    def tell(self, **message: Any) -> None:
        """One message. A launcher that has gone is no reason to fail: the worker is about to be ended too."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._descriptor, json.dumps(message).encode() + b"\n")

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Everything is built; the first step follows."""
        self.tell(
            kind="started",
            folder=str(folder.path),
            progress=asdict(progress),
            total_steps=total_steps,
            device=device,
        )

    def stepped(self, progress: Progress, loss: float) -> None:
        """A step, if the last one told is long enough ago."""
        now = self._clock()
        if now - self._last_step_told >= STEPS_EVERY_S:
            self._last_step_told = now
            self.tell(kind="stepped", progress=asdict(progress), loss=loss)

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """An epoch is over."""
        self.tell(kind="validated", progress=asdict(progress), metrics=metrics and metrics._asdict())

    def finished(self, result: Result) -> None:
        """The closing record."""
        self.tell(kind="finished", result=asdict(result))

    def failed(self, error: BaseException) -> None:
        """What went wrong, and where in our or the user's code."""
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        ours = isinstance(error, ShoalError)
        self.tell(
            kind="failed",
            name=type(error).__name__,
            message=error.message if ours else str(error),
            hint=error.hint if ours else "",
            expected=ours,
            consequence=isinstance(error, MemberError),
            where=where,
            traceback="".join(traceback.format_exception(error)),
        )


def pass_on(message: dict[str, Any], config: RunConfig, observer: Observer) -> None:
    """Tell an observer on this side what was told to the `PipeObserver` on the other."""
    kind = message["kind"]
    if kind == "started":
        folder, progress = RunFolder(Path(message["folder"])), Progress(**message["progress"])
        observer.started(config, folder, progress, message["total_steps"], message["device"])
    elif kind == "stepped":
        observer.stepped(Progress(**message["progress"]), message["loss"])
    elif kind == "validated":
        metrics = message["metrics"]
        observer.validated(Progress(**message["progress"]), Metrics(**metrics) if metrics else None)
