"""The first steps of a finished run of SGD again, to measure the loss of the whole training set after them.

The run itself knows only the losses of its batches, and the loss of one batch says little.
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor

from shoal import data, models, optim
from shoal.config.write import from_plain
from shoal.data.division.order import epoch_order
from shoal_labs.lab1.plan import BATCH_SIZE


def whole_loss_after(plain: dict[str, Any], steps: int) -> float:
    """The mean loss over all training samples after the first steps of a run with these settings, as plain data."""
    config = from_plain(plain)
    dataset = data.load(config.data)
    model = models.build(config.model, dataset.input_shape, dataset.outputs, config.seed)
    loss, optimizer = models.build_loss(config.loss), optim.build(config.optimizer, model.parameters())
    num_samples = len(dataset.train)
    for indices in islice(_batches(num_samples, config.seed), steps):
        batch = dataset.batch(dataset.train, indices)
        optimizer.zero_grad()
        (loss(model(batch.inputs), batch.labels) / len(indices)).backward()
        optimizer.step()
    with torch.no_grad():
        total = 0.0
        for indices in torch.arange(num_samples).split(config.train.micro_batch):
            batch = dataset.batch(dataset.train, indices)
            total += loss(model(batch.inputs), batch.labels).item()
    return total / num_samples


def _batches(num_samples: int, seed: int) -> Iterator[Tensor]:
    """The batches of a run, epoch after epoch."""
    for epoch in count():
        yield from epoch_order(num_samples, seed, epoch).split(BATCH_SIZE)
