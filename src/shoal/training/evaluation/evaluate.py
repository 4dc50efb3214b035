"""Evaluation of a split in batches; reads numbers from the device only at the end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from shoal.comm.group import BUSY_S, Group
from shoal.data.dataset import Batch, DataSet, Split
from shoal.models.metrics import Measure
from shoal.strategies.step import width_of
from shoal.strategies.strategy import Sums

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
    """Mean loss per sample, accuracy, and metrics.

    `sums_of` is a strategy's `evaluate`, which sums the same metrics; `group` is one worker of every replica: they
    divide the batches and sum the results. All have the same numbers, to the bit.
    """
    total = torch.zeros(width_of(measures), dtype=torch.float64)
    predictions = samples = 0
    for start in range(BATCH * group.rank, len(split), BATCH * group.size):
        group.beat(BUSY_S)
        indices = torch.arange(start, min(start + BATCH, len(split)))
        sums = sums_of(data.batch(split, indices))
        packed = sums.packed()
        total = total.to(packed) + packed
        predictions += sums.predictions
        samples += sums.samples
    numbers = torch.tensor([*total.tolist(), predictions, samples], dtype=torch.float64)
    if group.size > 1:
        group.all_reduce(numbers).wait()
    loss, correct = numbers[:2].tolist()
    all_predictions, all_samples = numbers[-2:].tolist()
    accuracy = correct / all_predictions if all_predictions else None
    parts = numbers[2:-2].split([each.width for each in measures])
    others = {each.label: each.value(part) for each, part in zip(measures, parts, strict=True)}
    return Metrics(loss / all_samples, accuracy, int(all_samples), others or None)
