"""Evaluation of a split in batches; reads numbers from the device only at the end."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from shoal.comm.group import BUSY_S, Group
from shoal.data.dataset import Batch, DataSet, Split
from shoal.parallel.strategy import Sums

BATCH = 1000


class Metrics(NamedTuple):
    """The result of an evaluation; regression has no accuracy."""

    loss: float
    accuracy: float | None
    samples: int


def evaluate(sums_of: Callable[[Batch], Sums], data: DataSet, split: Split, group: Group) -> Metrics:
    """Mean loss per sample, and accuracy.

    `sums_of` is a strategy's `evaluate`, `group` one worker of every replica: they divide the batches and sum the
    results.
    """
    loss = correct = torch.zeros(())
    predictions = samples = 0
    for start in range(BATCH * group.rank, len(split), BATCH * group.size):
        group.beat(BUSY_S)
        indices = torch.arange(start, min(start + BATCH, len(split)))
        sums = sums_of(data.batch(split, indices))
        loss, correct = loss.to(sums.loss) + sums.loss, correct.to(sums.correct) + sums.correct
        predictions += sums.predictions
        samples += sums.samples
    total = torch.tensor([loss.item(), correct.item(), predictions, samples], dtype=torch.float64)
    if group.size > 1:
        group.all_reduce(total).wait()
    all_loss, all_correct, all_predictions, all_samples = total.tolist()
    accuracy = all_correct / all_predictions if all_predictions else None
    return Metrics(all_loss / all_samples, accuracy, int(all_samples))
