"""Loggers: callbacks that write losses and metrics for other programs (`--logger`)."""

import csv
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, final

from shoal.api.callbacks import Callback
from shoal.config.custom import calling, load
from shoal.config.metrics import ALWAYS, label_of
from shoal.config.schema import RunConfig
from shoal.config.sections.values import Custom
from shoal.config.write import flat, literal
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder
from shoal.files import make_folder, open_new, temporary_beside
from shoal.training.evaluation import Metrics
from shoal.training.result import Result

COLUMNS = ("step", "epoch", "training_loss", "validation_loss", "validation_accuracy")


def loggers_of(config: RunConfig) -> Sequence[Callback]:
    """The loggers that a run's settings name; what is not installed is refused before the run begins."""
    labels = [label_of(name) for name in config.train.metrics if name not in ALWAYS]
    return [
        _LOGGERS[name](config, labels) if name in _LOGGERS else _own(Custom(name=name))
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


class _Points(Callback):
    """Writes numbers, each with a name and the step after which it was measured: `loss/training`, `accuracy/test`."""

    @abstractmethod
    def add(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers of one step."""

    def flush(self) -> None:
        """Put what was added where other programs read it."""

    def step(self, step: int, loss: float) -> None:
        """The training loss."""
        self._last = step
        self.add({"loss/training": loss}, step)

    def epoch(self, epoch: int, loss: float | None, validation: Metrics | None) -> None:
        """The metrics on the validation set, at the step where the epoch ended."""
        if validation is not None:
            self.add({f"{name}/validation": value for name, value in validation.by_name.items()}, self._last)
        self.flush()

    def end(self, result: Result) -> None:
        """The metrics on the test set."""
        values = {"loss": result.test_loss, "accuracy": result.test_accuracy, **(result.test_metrics or {})}
        measured = {f"{name}/test": value for name, value in values.items() if value is not None}
        if measured:
            self.add(measured, result.steps)


@final
class TensorboardLogger(_Points):
    """Writes a folder `tensorboard` into the run folder."""

    def __init__(self) -> None:
        self._make: Callable[..., Any] = _package("tensorboard", "torch.utils.tensorboard").SummaryWriter

    def start(self, folder: Path, step: int, total_steps: int) -> None:
        """Open the files; a resumed run hides the lines that it had written after its checkpoint."""
        make_folder(folder / "tensorboard")
        self._writer = self._make(str(folder / "tensorboard"), purge_step=step + 1 if step else None)
        self._last = step

    def add(self, values: Mapping[str, float], step: int) -> None:
        """One point each."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        """Everything is in the file."""
        self._writer.flush()

    def end(self, result: Result) -> None:
        """The result on the test set, then the end."""
        super().end(result)
        self._writer.close()


@final
class WandbLogger(_Points):
    """Writes a folder `wandb` into the run folder, for `wandb sync`; sends nothing unless $WANDB_MODE is online."""

    def __init__(self, config: RunConfig) -> None:
        self._wandb, self._config = _package("wandb"), config

    def start(self, folder: Path, step: int, total_steps: int) -> None:
        """Begin a run with the id of ours, or continue it: steps that a resumed run repeats have the same values."""
        mode = os.environ.get("WANDB_MODE", "offline")
        make_folder(folder / "wandb")
        self._run = self._wandb.init(
            dir=str(folder),
            project=os.environ.get("WANDB_PROJECT", "shoal"),
            name=folder.name,
            id=RunFolder(folder).run_id or None,
            resume="allow" if mode == "online" else None,
            mode=mode,
            config=_settings(self._config),
            reinit="create_new",
            # What a run prints is ours; a link to a page online is of use.
            settings=self._wandb.Settings(console="off", silent=mode != "online"),
        )
        self._last = step

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Values of the same step are gathered by the package."""
        self._run.log(dict(values), step=step)

    def end(self, result: Result) -> None:
        """The result on the test set, then the end."""
        super().end(result)
        self._run.finish()


@final
class MlflowLogger(_Points):
    """Writes `mlflow/mlflow.db` into the run folder, for `mlflow ui`, or to the server of $MLFLOW_TRACKING_URI."""

    def __init__(self, config: RunConfig) -> None:
        self._mlflow, self._config = _package("mlflow"), config
        self._waiting: list[Any] = []

    def start(self, folder: Path, step: int, total_steps: int) -> None:
        """Begin a run that is tagged with the id of ours, or continue it: repeated steps have the same values."""
        uri, place = os.environ.get("MLFLOW_TRACKING_URI"), None
        if not uri:
            make_folder(folder / "mlflow")
            own = (folder / "mlflow").resolve()
            uri, place = f"sqlite:///{own / 'mlflow.db'}", (own / "artifacts").as_uri()
        self._client = self._mlflow.MlflowClient(tracking_uri=uri)
        name, run_id = os.environ.get("MLFLOW_EXPERIMENT_NAME", "shoal"), RunFolder(folder).run_id
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name, place)
        ours = self._client.search_runs([experiment], f"tags.shoal_run = '{run_id}'") if run_id else []
        if ours:
            self._id = ours[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            made = self._client.create_run(experiment, tags={"shoal_run": run_id}, run_name=folder.name)
            self._id = made.info.run_id
            # Settings stay as the run began: the package refuses other values.
            for path, value in _settings(self._config).items():
                self._client.log_param(self._id, path, value)
        self._last = step

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Points wait for the next flush: a transaction for each would be slower than a step."""
        now = time.time_ns() // 1_000_000
        metric = self._mlflow.entities.Metric
        self._waiting += [metric(name, value, now, step) for name, value in values.items()]
        if len(self._waiting) >= MLFLOW_MOST:
            self.flush()

    def flush(self) -> None:
        """Write the points that wait."""
        for begin in range(0, len(self._waiting), MLFLOW_MOST):
            self._client.log_batch(self._id, metrics=self._waiting[begin : begin + MLFLOW_MOST])
        self._waiting = []

    def checkpoint(self, step: int) -> None:
        """A resumed run begins here."""
        self.flush()

    def end(self, result: Result) -> None:
        """The result on the test set, then the end."""
        super().end(result)
        self.flush()
        self._client.set_terminated(self._id, "FINISHED" if result.status == "completed" else "KILLED")


MLFLOW_MOST = 500
"""Points in one call; a server takes 1,000."""


def _package(logger: str, module: str = "") -> Any:
    try:
        return import_module(module or logger)
    except ImportError:
        raise ConfigError(
            f"logger {logger} needs the package {logger}, which is not installed",
            f"Install it: pip install {logger}",
        ) from None


def _settings(config: RunConfig) -> dict[str, Any]:
    """The settings by path, as these packages take them: numbers and texts."""
    return {
        path: value if isinstance(value, int | float | str) else literal(value)
        for path, value in flat(config).items()
        if value is not None
    }


def _own(config: Custom) -> Callback:
    with calling("logger", config):
        logger = load("logger", config)()
    if not isinstance(logger, Callback):
        raise ConfigError(
            f"logger {config.name} returned a value of type {type(logger).__name__}",
            "Return an instance of a class that derives from shoal.Callback.",
        )
    return logger


_LOGGERS: dict[str, Callable[[RunConfig, Sequence[str]], Callback]] = {
    "csv": lambda config, metrics: CsvLogger(metrics),
    "tensorboard": lambda config, metrics: TensorboardLogger(),
    "wandb": lambda config, metrics: WandbLogger(config),
    "mlflow": lambda config, metrics: MlflowLogger(config),
}
"""Each takes the settings, and the names of the metrics beside loss and accuracy."""


def _rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a log; one that a crash has cut off within its first cell is left out."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit()]
