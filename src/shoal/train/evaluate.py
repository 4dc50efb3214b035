"""Evaluation of a split, in batches, without reading a number from the device before the end."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from shoal.data.dataset import Batch, DataSet, Split
from shoal.parallel.strategy import Sums

BATCH = 1000


class Metrics(NamedTuple):
    """What an evaluation found. Where numbers are predicted there is no accuracy."""

    loss: float
    accuracy: float | None
    samples: int


def evaluate(
    sums_of: Callable[[Batch], Sums], data: DataSet, split: Split, batch_size: int = BATCH
) -> Metrics:
    """Mean loss per sample, and the part of the predictions that is right; `sums_of` is a strategy's `evaluate`."""
    loss = correct = torch.zeros(())
    predictions = samples = 0
    for start in range(0, len(split), batch_size):
        indices = torch.arange(start, min(start + batch_size, len(split)))
        sums = sums_of(data.batch(split, indices))
        loss, correct = loss.to(sums.loss) + sums.loss, correct.to(sums.correct) + sums.correct
        predictions += sums.predictions
        samples += sums.samples
    accuracy = correct.item() / predictions if predictions else None
    return Metrics(loss.item() / samples, accuracy, samples)
