"""Callbacks of a run, and the loggers: callbacks that write losses and metrics for other programs (`--logger`)."""

import csv
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from shoal.config.custom import calling, load
from shoal.config.metrics import ALWAYS, label_of
from shoal.config.schema import RunConfig
from shoal.config.sections.values import Custom
from shoal.errors import CallbackError, ConfigError
from shoal.events.folder import RunFolder
from shoal.files import make_folder, open_new, temporary_beside
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


COLUMNS = ("step", "epoch", "training_loss", "validation_loss", "validation_accuracy")


def loggers_of(config: RunConfig) -> Sequence[Callback]:
    """The loggers that a run's settings name; what is not installed is refused before the run begins."""
    labels = [label_of(name) for name in config.train.metrics if name not in ALWAYS]
    return [
        _LOGGERS[name](labels) if name in _LOGGERS else _own(Custom(name=name))
        for name in config.output.logger
    ]


class CsvLogger(Callback):
    """Writes `metrics.csv` into the run folder: a row after each step, and one with validation after each epoch."""

    def __init__(self, metrics: Sequence[str] = ()) -> None:
        """`metrics` are the names of those beside loss and accuracy, each with a column."""
        self._metrics = metrics
        self._file: TextIO | None = None

    def start(self, folder: Path, step: int, total_steps: int) -> None:
        """Begin the file; of a resumed run, keep the rows of the steps that it has made."""
        path, columns = folder / "metrics.csv", (*COLUMNS, *(f"validation_{name}" for name in self._metrics))
        kept = [
            [row.get(column) or "" for column in columns]
            for row in _rows_of(path)
            if int(row["step"]) <= step
        ]
        # A second file until it is complete: a crash here must not lose the rows of the steps before.
        new = temporary_beside(path)
        self._file = TextIOWrapper(open_new(new), encoding="utf-8", newline="")
        self._rows = csv.writer(self._file)
        self._rows.writerow(columns)
        self._rows.writerows(kept)
        self._flush()
        new.replace(path)
        self._last = step

    def step(self, step: int, loss: float) -> None:
        """A row."""
        self._last = step
        self._rows.writerow((step, "", repr(loss), "", "", *("" for _ in self._metrics)))

    def epoch(self, epoch: int, loss: float | None, validation: Metrics | None) -> None:
        """A row with the mean loss of the epoch."""
        found = validation.by_name if validation else {}
        measured = (found.get(name, "") for name in (*ALWAYS, *self._metrics))
        self._rows.writerow((self._last, epoch, repr(loss), *measured))
        self._flush()

    def checkpoint(self, step: int) -> None:
        """Everything up to a checkpoint is in the file."""
        self._flush()

    def end(self, result: Result) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()


class TensorboardLogger(Callback):
    """Writes a folder `tensorboard` into the run folder."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "logger tensorboard needs the package tensorboard, which is not installed",
                "Install it: pip install tensorboard",
            ) from None
        self._make: Callable[..., Any] = SummaryWriter
        self._writer: Any = None

    def start(self, folder: Path, step: int, total_steps: int) -> None:
        """Open the files; a resumed run hides the lines that it had written after its checkpoint."""
        make_folder(folder / "tensorboard")
        self._writer = self._make(str(folder / "tensorboard"), purge_step=step + 1 if step else None)
        self._last = step

    def step(self, step: int, loss: float) -> None:
        """One point."""
        self._last = step
        self._writer.add_scalar("loss/training", loss, step)

    def epoch(self, epoch: int, loss: float | None, validation: Metrics | None) -> None:
        """The metrics on the validation set, at the step where the epoch ended."""
        if validation is not None:
            for name, value in validation.by_name.items():
                self._writer.add_scalar(f"{name}/validation", value, self._last)
        self._writer.flush()

    def end(self, result: Result) -> None:
        """The result on the test set, then the end."""
        if result.test_accuracy is not None:
            self._writer.add_scalar("accuracy/test", result.test_accuracy, result.steps)
        for name, value in (result.test_metrics or {}).items():
            self._writer.add_scalar(f"{name}/test", value, result.steps)
        self._writer.close()


def _own(config: Custom) -> Callback:
    with calling("logger", config):
        logger = load("logger", config)()
    if not isinstance(logger, Callback):
        raise ConfigError(
            f"logger {config.name} returned a value of type {type(logger).__name__}",
            "Return an instance of a class that derives from shoal.Callback.",
        )
    return logger


_LOGGERS: dict[str, Callable[[Sequence[str]], Callback]] = {
    "csv": CsvLogger,
    "tensorboard": lambda metrics: TensorboardLogger(),
}
"""Each takes the names of the metrics beside loss and accuracy."""


def _rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a log; one that a crash has cut off within its first cell is left out."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit()]
