"""The best epoch so far, by the validation set, and when to stop waiting for a better one.

Both are functions of `Progress` and of numbers that all workers have to the bit. So all decide the same without a
message, and a resumed run goes on counting where it was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal.config.sections.train import StopConfig
from shoal.data.dataset import DataSet
from shoal.errors import ConfigError
from shoal.models.metrics import Measure
from shoal.training.evaluation.evaluate import Metrics
from shoal.training.progress import Progress


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
        if config.metric == "accuracy" and data.task == "regression":
            raise ConfigError(
                "--stop.metric accuracy needs labels that are classes, and this is regression",
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
        value = metrics.by_name[self.metric]
        if not self._is_better(value, progress.best_value):
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

    def _is_better(self, value: float, best: float | None) -> bool:
        if math.isnan(value):
            return False
        return best is None or (value - best if self.higher else best - value) > self.least_change
