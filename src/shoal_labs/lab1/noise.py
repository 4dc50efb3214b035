"""What a finished run of SGD did not record: the noise of its gradient, and its loss on the whole training set.

Noise is how far the gradient of a batch is from the gradient of the whole set: what "stochastic" is, in one number.

    noise = √(mean over batches of ‖g_batch − g‖²) / ‖g‖

measured at the initial weights and at the weights that SGD ends with. For the whole set, taken in another order, the
same ratio is rounding alone. The run itself knows only the losses of its batches, and the loss of one batch says
little: so its first steps are made again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shoal import data, models, optim
from shoal.kit.division import DataSet, epoch_order
from shoal.kit.runs import RunFolder
from shoal.kit.settings import RunConfig, from_plain, from_tree, read_recipe
from shoal.kit.strategies import load_weights
from shoal.kit.training import read_model
from shoal_labs.lab1.plan import BATCH_SIZE

BATCHES = 40
"""Mini-batches that the mean is taken over."""


@dataclass(frozen=True)
class Noise:
    """Relative distances from the whole gradient, of one run."""

    start: float
    """Of mini-batches at the initial weights."""
    end: float
    """Of mini-batches at the trained weights."""
    order: float
    """Of the whole training set in another order, at the initial weights."""


def noise_of(run: Path) -> Noise:
    """Measure at both ends of a finished run. Costs three passes over the training set."""
    folder = RunFolder(run)
    config = from_tree(read_recipe(str(folder.config)))
    dataset = data.load(config.data)
    model = models.build(config.model, dataset.input_shape, dataset.outputs, config.seed)
    first, second = (epoch_order(len(dataset.train), config.seed, epoch) for epoch in (0, 1))
    batches = first.split(BATCH_SIZE)[:BATCHES]

    gradient = _Gradient(config, dataset, model)
    whole = gradient(first)
    order = _distance([gradient(second)], whole)
    start = _distance([gradient(batch) for batch in batches], whole)
    load_weights(model, read_model(folder.model).weights)
    end = _distance([gradient(batch) for batch in batches], gradient(first))
    return Noise(start, end, order)


class _Gradient:
    """The mean gradient over some samples, as one flat vector."""

    def __init__(self, config: RunConfig, dataset: DataSet, model: nn.Module) -> None:
        self._dataset, self._model = dataset, model
        self._loss = models.build_loss(config.loss)
        self._micro_batch = config.train.micro_batch

    def __call__(self, indices: Tensor) -> Tensor:
        params = list(self._model.parameters())
        total = torch.zeros(sum(param.numel() for param in params))
        for part in indices.split(self._micro_batch):
            batch = self._dataset.batch(self._dataset.train, part)
            grads = torch.autograd.grad(self._loss(self._model(batch.inputs), batch.labels), params)
            total += torch.cat([grad.reshape(-1) for grad in grads])
        return total / len(indices)


def _distance(gradients: Sequence[Tensor], whole: Tensor) -> float:
    squares = torch.stack([(gradient - whole).double().square().sum() for gradient in gradients])
    return float(squares.mean().sqrt() / whole.double().norm())


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
