"""Callbacks: what a program is told while a run trains."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.config.schema import RunConfig
from shoal.errors import CallbackError
from shoal.events.folder import RunFolder
from shoal.training.evaluation import Metrics
from shoal.training.observer import Observer
from shoal.training.progress import Progress
from shoal.training.result import Result


class Callback:
    """What is called while a run trains. Override what you need.

    Callbacks run in the program that called `shoal.train`, not in its workers: they may keep results in lists and draw,
    and they cannot change the training. With workers in processes they run a moment after the event.
    """

    def start(self, folder: Path, step: int, total_steps: int) -> None:
        """Before the first step: the run folder, the steps that a resumed run has made, and those of the whole run."""

    def step(self, step: int, loss: float) -> None:
        """After every step: its number, from 1, and its training loss."""

    def epoch(self, epoch: int, loss: float | None, validation: Metrics | None) -> None:
        """After every epoch: its number, from 1, its mean training loss, and the metrics on the validation set."""

    def checkpoint(self, step: int) -> None:
        """After every checkpoint, which holds the state after this step."""

    def end(self, result: Result) -> None:
        """After the run, completed or interrupted."""


class WithCallbacks:
    """An observer that calls callbacks, after another observer, such as a display."""

    def __init__(self, callbacks: Sequence[Callback], observer: Observer) -> None:
        self._callbacks, self._observer = callbacks, observer

    @property
    def wants_every_step(self) -> bool:
        """Callbacks do."""
        return True

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Call `start`."""
        self._observer.started(config, folder, progress, total_steps, device)
        self._call("start", folder.path, progress.step, total_steps)

    def stepped(self, progress: Progress, loss: float) -> None:
        """Call `step`."""
        self._observer.stepped(progress, loss)
        self._call("step", progress.step, loss)

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """Call `epoch`."""
        self._observer.validated(progress, metrics)
        self._call("epoch", progress.epoch, progress.last_epoch_loss, metrics)

    def saved(self, progress: Progress) -> None:
        """Call `checkpoint`."""
        self._observer.saved(progress)
        self._call("checkpoint", progress.step)

    def evaluating(self, samples: int) -> None:
        """Pass it on."""
        self._observer.evaluating(samples)

    def ended(self, result: Result) -> None:
        """Call `end`."""
        self._call("end", result)

    def _call(self, method: str, *values: Any) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, method)(*values)
            except Exception as error:  # any exception: this runs the user's code
                raise CallbackError(
                    f"callback {type(callback).__name__}.{method} raised {type(error).__name__}: {error}",
                    "The run was stopped; its checkpoints are complete.",
                ) from error
