"""What a worker process tells its launcher: lines of JSON on a pipe, read as they come."""

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
from shoal.train.evaluate import Metrics
from shoal.train.observer import Observer
from shoal.train.progress import Progress
from shoal.train.result import Result

STEPS_EVERY_S = 0.1
"""How often at most a worker tells of its steps: the launcher draws no faster."""

Message = dict[str, Any]


class Teller:
    """The worker's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # what the worker starts has nothing to tell
        self._descriptor = descriptor
        self._one_at_a_time = threading.Lock()

    def tell(self, **message: Any) -> None:
        """One message. A launcher that has gone is no reason to fail: the worker is about to be ended too."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        with self._one_at_a_time, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._descriptor, data) :]

    def has_room(self) -> bool:
        """Whether a short message would go at once: not when the launcher has been stopped for a while."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(0))

    def failed(self, failure: Failure) -> None:
        """What went wrong, and where."""
        self.tell(kind="failed", failure=asdict(failure))

    def finished(self, result: Result | None = None) -> None:
        """The work is done: whatever happens to the process now is of no matter."""
        self.tell(kind="finished", result=result and asdict(result))

    def warned(self, message: Warning | str, category: type[Warning], *_: object) -> None:
        """A warning that a person should see (in the shape of `warnings.showwarning`)."""
        self.tell(kind="warned", category=category.__name__, text=str(message))


class PipeObserver:
    """Tells a launcher what an observer would be told."""

    def __init__(self, teller: Teller, clock: Callable[[], float]) -> None:
        self._teller = teller
        self._clock = clock
        self._last_step_told = 0.0

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Everything is built; the first step follows."""
        self._teller.tell(
            kind="started",
            folder=str(folder.path),
            progress=asdict(progress),
            total_steps=total_steps,
            device=device,
        )

    def stepped(self, progress: Progress, loss: float) -> None:
        """A step, if the last one told is long enough ago, and without ever waiting for a launcher that is stopped."""
        now = self._clock()
        if now - self._last_step_told >= STEPS_EVERY_S and self._teller.has_room():
            self._last_step_told = now
            self._teller.tell(kind="stepped", progress=asdict(progress), loss=loss)

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """An epoch is over."""
        self._teller.tell(kind="validated", progress=asdict(progress), metrics=metrics and metrics._asdict())


def pass_on(message: Message, config: RunConfig, observer: Observer) -> None:
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
