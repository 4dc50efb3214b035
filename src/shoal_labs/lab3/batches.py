"""Batch size: how far a batch's gradient is from the whole one, and how accurate training ends in as many epochs.

A small network on one machine: how many workers compute a batch changes neither (`order.py`). SGD, because its learning
rate is what is scaled with the batch. Fast enough to be computed again from the same seeds for every report.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from shoal import models
from shoal.kit.division import DataSet, epoch_order, load, sample_draws
from shoal.kit.findings import Measured, accuracy_over, over_seeds
from shoal.kit.settings import MlpConfig
from shoal.kit.training import torch_settings
from shoal_labs.lab3.plan import Lab3Plan

BATCH_SIZES = (16, 64, 256)
SMALLEST, LARGEST = BATCH_SIZES[0], BATCH_SIZES[-1]
BATCH_RATE = 0.02
"""Learning rate with the smallest batch, and of all batches where it is fixed."""
DRAWS = 40
"""Batches that a variance is the mean of."""
MOST_SEEDS = 6


@dataclass(frozen=True)
class Batch:
    """One batch size; numbers seed by seed."""

    variances: tuple[float, ...]
    """Mean of ‖g_b − g‖² over batches drawn at random, as a multiple of ‖g‖², at the initial weights."""
    fixed: tuple[float, ...]
    """Test accuracies with the smallest batch's learning rate."""
    scaled: tuple[float, ...]
    """With a learning rate in proportion to the batch."""
    test_samples: int

    @property
    def variance(self) -> Measured:
        """Over the seeds."""
        return over_seeds(self.variances)

    def accuracy(self, rate: str) -> Measured:
        """With the learning rate `fixed` or `scaled`, over the seeds."""
        return accuracy_over(self.fixed if rate == "fixed" else self.scaled, self.test_samples)


def seeds_of(plan: Lab3Plan) -> tuple[int, ...]:
    """The seeds of this experiment."""
    return plan.seeds[:MOST_SEEDS]


def rate_of(size: int) -> float:
    """The scaled learning rate.

    >>> rate_of(64)
    0.08
    """
    return BATCH_RATE * size / SMALLEST


def compare_batches(plan: Lab3Plan) -> dict[int, Batch]:
    """Every batch size, on the CPU, also where the other runs use a GPU."""
    with torch_settings(replace(plan.own(1, plan.first_seed), device="cpu")):
        data, seeds = load(plan.data), seeds_of(plan)
        variances = [_variances(data, seed) for seed in seeds]

        def accuracies(size: int, rate: float) -> tuple[float, ...]:
            return tuple(_trained(data, seed, size, rate, plan.size.epochs) for seed in seeds)

        fixed = {size: accuracies(size, BATCH_RATE) for size in BATCH_SIZES}
        return {
            size: Batch(
                tuple(each[size] for each in variances),
                fixed[size],
                fixed[size] if size == SMALLEST else accuracies(size, rate_of(size)),
                len(data.test),
            )
            for size in BATCH_SIZES
        }


def _variances(data: DataSet, seed: int) -> Mapping[int, float]:
    """By batch size; the batches are drawn with replacement, so that their samples are independent."""
    net, count = _network(data, seed), len(data.train)

    def gradient(numbers: Tensor) -> Tensor:
        grads = torch.autograd.grad(_loss(net, data, numbers), list(net.parameters()))
        return torch.cat([grad.flatten() for grad in grads])

    def draws(size: int) -> Iterator[Tensor]:
        return (sample_draws(count, size, seed, draw, rank=size) for draw in range(DRAWS))

    whole = gradient(torch.arange(count))
    apart = {size: [(gradient(each) - whole).square().sum() for each in draws(size)] for size in BATCH_SIZES}
    return {size: float(torch.stack(each).mean() / whole.square().sum()) for size, each in apart.items()}


def _trained(data: DataSet, seed: int, size: int, rate: float, epochs: int) -> float:
    """The test accuracy after some epochs."""
    net = _network(data, seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for epoch in range(epochs):
        for numbers in epoch_order(len(data.train), seed, epoch).split(size):
            optimizer.zero_grad()
            _loss(net, data, numbers).backward()
            optimizer.step()
    with torch.no_grad():
        test = data.batch(data.test, torch.arange(len(data.test)))
        return float((net(test.inputs).argmax(1) == test.labels).float().mean())


def _network(data: DataSet, seed: int) -> nn.Module:
    return models.build(MlpConfig(), data.input_shape, data.outputs, seed)


def _loss(net: nn.Module, data: DataSet, numbers: Tensor) -> Tensor:
    batch = data.batch(data.train, numbers)
    return nn.functional.cross_entropy(net(batch.inputs), batch.labels)
