"""Settings of training, checkpoints and output."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Literal

from shoal.config.choices import Checked
from shoal.config.kinds import Several, Text
from shoal.config.metrics import ALWAYS, check_metric_names, label_of
from shoal.config.sections.values import Count, NonNegative, PositiveFloat
from shoal.errors import ConfigError, unknown
from shoal.printable import printable


@dataclass(frozen=True)
class TrainConfig(Checked):
    """Length of the training, and batches."""

    start: str = ""
    """Start from the weights of this run folder or safetensors file; empty: from weights drawn with the seed."""
    epochs: Count = 3
    """Passes through the training set."""
    steps: Count | None = None
    """Stop after this many steps, even within an epoch; none: after --epochs."""
    batch_size: Count | Literal["all"] | None = None
    """Global batch size: samples per step over all workers. `all`, the default for gd: the whole training set."""
    drop_last: bool = False
    """Leave out the last batch of an epoch if it is smaller than the others."""
    micro_batch: Count = 2048
    """Largest batch of one forward pass: gradients of larger shares are accumulated, with the same sum."""
    reduction: Literal["fastest", "invariant"] = "fastest"
    """Order of the sums over a batch. invariant: the same bits for 1, 2, 4, 8, … workers."""
    clip_norm: PositiveFloat | None = None
    """Clip the gradient to this norm."""
    coupled: bool = False
    """Accept a loss that compares samples with each other (contrastive): results depend on the number of workers."""
    balance: bool = False
    """Divide batches by measured speed: slow workers get fewer samples; the batches stay the same."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """A worker's gradient is not finite: stop with an error that names the worker, or skip the update."""
    test: bool = True
    """Evaluate on the test set at the end; use false while you tune settings."""
    metrics: tuple[str, ...] = ()
    """More metrics than loss and accuracy: top5 (any K), perplexity, package.module:function; separated by commas."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_metric_names(self.metrics)


@dataclass(frozen=True)
class StopConfig(Checked):
    """When to stop early, and which epoch is the best: both by the validation set (--validation), after every epoch."""

    patience: Count | None = None
    """Stop after this many epochs in a row without a better one; none: make all steps."""
    metric: Text = "loss"
    """What decides: loss, accuracy, or one of --metrics."""
    goal: Literal["auto", "lower", "higher"] = "auto"
    """Which values are better; auto: as the metric declares: lower for loss and perplexity, higher for accuracy."""
    least_change: NonNegative = 0.0
    """An epoch is better only if it improves on the best value by more than this."""

    def check_metric(self, metrics: tuple[str, ...]) -> None:
        """Refuse a metric that the run does not have."""
        known = [*ALWAYS, *(label_of(name) for name in metrics if name not in ALWAYS)]
        if self.metric not in known:
            raise ConfigError(
                unknown("--stop.metric", self.metric, known),
                f"Add it to --metrics: --metrics {','.join([*metrics, self.metric])}.",
            )


@dataclass(frozen=True)
class CheckpointConfig(Checked):
    """When to save checkpoints, and how many to keep."""

    every: Count | None = None
    """Steps between checkpoints; none: save after every epoch."""
    keep: Count = 2
    """Checkpoints to keep beside the best on the validation set; others are deleted after a newer one is on disk."""
    first_step: bool = False
    """Save after the first step, too, and export the state of model and optimizer; `shoal compare` compares it."""


LOGGERS = ("csv", "tensorboard", "wandb", "mlflow")


@dataclass(frozen=True)
class OutputConfig(Checked):
    """Where the run folder goes."""

    dir: Text = "runs"
    """Folder for all runs."""
    name: str = ""
    """Name of the run folder; empty: built from model, optimizer, data and time."""
    trace: bool = False
    """Record the spans of every step, not only of every 20th."""
    logger: Annotated[tuple[str, ...], Several()] = ()
    """Log losses and metrics also as csv, for tensorboard, wandb or mlflow, or package.module:function; repeatable."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for logger in self.logger:
            if logger not in LOGGERS and ":" not in logger:
                raise ConfigError(
                    unknown("logger", logger, LOGGERS), "For one of your own, write package.module:function."
                )
        path = PurePath(self.name)
        is_plain = printable(self.name) == self.name and not set(self.name) & set("\t\n")
        if path.is_absolute() or ".." in path.parts or not is_plain:
            raise ConfigError(
                f"the name of a run is the name of a folder inside {self.dir}, and {self.name!r} is not",
                "Choose another --name; --runs-dir is the folder of all runs.",
            )
