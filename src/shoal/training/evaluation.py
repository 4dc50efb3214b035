"""Evaluation of a split in batches, and the best epoch by the validation set."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shoal.comm.group import BUSY_S, Group
from shoal.config.sections.train import StopConfig
from shoal.data.dataset import Batch, DataSet, Split
from shoal.errors import ConfigError, NothingCountedError
from shoal.models.metrics import Measure
from shoal.strategies.strategy import Sums, width_of
from shoal.training.progress import Progress

BATCH = 1000


class Metrics(NamedTuple):
    """The result of an evaluation; regression has no accuracy."""

    loss: float
    accuracy: float | None
    samples: int
    metrics: Mapping[str, float] | None = None
    """The metrics that `--metrics` names, by name; None without any."""

    @property
    def by_name(self) -> dict[str, float]:
        """Every number, by its name."""
        accuracy = {} if self.accuracy is None else {"accuracy": self.accuracy}
        return {"loss": self.loss, **accuracy, **(self.metrics or {})}

    def record(self) -> dict[str, Any]:
        """The numbers for an event or a line of JSON: without `metrics` if there are none."""
        return {
            name: value for name, value in self._asdict().items() if name != "metrics" or value is not None
        }


def evaluate(
    sums_of: Callable[[Batch], Sums],
    data: DataSet,
    split: Split,
    group: Group,
    measures: Sequence[Measure] = (),
) -> Metrics:
    """Mean loss per sample (by a loss that counts, per count), accuracy, and metrics.

    `sums_of` is a strategy's `evaluate`, which sums the same metrics; `group` is one worker of every replica: they
    divide the batches and sum the results. All have the same numbers, to the bit.
    """
    total = torch.zeros(width_of(measures), dtype=torch.float64)
    predictions = samples = 0
    starts = range(BATCH * group.rank, len(split), BATCH * group.size)

    def batches() -> Iterator[Tensor]:
        return (torch.arange(start, min(start + BATCH, len(split))) for start in starts)

    split.read_ahead(batches)
    for indices in batches():
        group.beat(BUSY_S)
        sums = sums_of(data.batch(split, indices))
        packed = sums.packed()
        total = total.to(packed) + packed
        predictions += sums.predictions
        samples += sums.samples
    split.close()
    numbers = torch.tensor([*total.tolist(), predictions, samples], dtype=torch.float64)
    if group.size > 1:
        group.all_reduce(numbers).wait()
    loss, correct, count = numbers[:3].tolist()
    all_predictions, all_samples = numbers[-2:].tolist()
    accuracy = correct / all_predictions if all_predictions else None
    parts = numbers[3:-2].split([each.width for each in measures])
    others = {each.label: each.value(part) for each, part in zip(measures, parts, strict=True)}
    if count <= 0:
        raise NothingCountedError(
            f"the count of the loss is 0 for all {int(all_samples):,} samples of the evaluation"
        )
    return Metrics(loss / count, accuracy, int(all_samples), others or None)


@dataclass(frozen=True)
class BestEpoch:
    """Which number of a validation counts, which direction is better, and how many epochs to wait for a better one."""

    metric: str
    higher: bool
    patience: int | None = None
    least_change: float = 0.0

    @classmethod
    def of(cls, config: StopConfig, data: DataSet, measures: Sequence[Measure]) -> "BestEpoch | None":
        """As the settings of a run say; None without a validation set, which early stopping needs.

        Losses are better if they are lower, a metric as it declares.
        """
        if data.validation is None:
            if config.patience is not None:  # only the data shows whether data of one's own has such a set
                raise ConfigError(
                    f"--stop.patience needs a validation set, and {data.name} has none",
                    "Hold one out: --validation 0.1.",
                )
            return None
        if config.metric == "accuracy" and data.task in ("regression", "own"):
            kind = "regression" if data.task == "regression" else "data with nested labels or none"
            raise ConfigError(
                f"--stop.metric accuracy needs labels that are classes, and this is {kind}",
                "Use --stop.metric loss.",
            )
        prefers = {"loss": False, "accuracy": True}
        prefers |= {each.label: bool(each.metric.higher_is_better) for each in measures}
        higher = prefers[config.metric] if config.goal == "auto" else config.goal == "higher"
        return cls(config.metric, higher, config.patience, config.least_change)

    def after(self, progress: Progress, metrics: Metrics) -> Progress:
        """Progress after a validation at the end of an epoch.

        >>> best = BestEpoch("loss", higher=False, patience=2)
        >>> first = best.after(Progress(step=10, epoch=1), Metrics(0.5, None, 100))
        >>> worse = best.after(Progress(step=20, epoch=2, best_value=0.5, best_epoch=1), Metrics(0.6, None, 100))
        >>> first.best_epoch, worse.best_epoch, best.is_over(worse)
        (1, 1, False)
        """
        value, best = metrics.by_name[self.metric], progress.best_value
        gain = math.inf if best is None else value - best if self.higher else best - value
        if math.isnan(value) or not gain > self.least_change:
            return progress
        return replace(progress, best_value=value, best_step=progress.step, best_epoch=progress.epoch)

    def is_over(self, progress: Progress) -> bool:
        """Whether `patience` epochs have passed without a better one: then the run ends."""
        return self.patience is not None and progress.epoch - progress.best_epoch >= self.patience

    def record(self, progress: Progress) -> dict[str, Any] | None:
        """The best epoch, for the result of a run; None before the first validation."""
        if progress.best_value is None:
            return None
        where = {"epoch": progress.best_epoch, "step": progress.best_step}
        return {"metric": self.metric, "value": progress.best_value, **where}
