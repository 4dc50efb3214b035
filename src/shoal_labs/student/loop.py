"""The training loop of the experiments: the labs' network on their digits, with what makes the gradients agree."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shoal import data, models
from shoal.kit.division import DataSet
from shoal.kit.settings import DigitsConfig, LenetConfig

BATCH = 64
RATE = 0.1
"""Learning rate of SGD."""
TEST_BATCH = 500
TINY = 1e-12
"""Below this, a largest value does not divide a difference."""


def digits(samples: int) -> DataSet:
    """The labs' digits."""
    return data.load(DigitsConfig(samples=samples))


def network(dataset: DataSet, seed: int) -> nn.Module:
    """The labs' network with weights from the seed."""
    return models.build(LenetConfig(), dataset.input_shape, dataset.outputs, seed)


def batches(dataset: DataSet, seed: int, steps: int) -> list[Tensor]:
    """The samples of each step: the same on every node and on one machine."""
    generator, found = torch.Generator().manual_seed(seed), list[Tensor]()
    while len(found) < steps:
        order = torch.randperm(len(dataset.train), generator=generator)
        found += [batch for batch in order.split(BATCH) if len(batch) == min(BATCH, len(order))]
    return found[:steps]


def flat(model: nn.Module) -> Tensor:
    """A copy of all weights."""
    return torch.cat([param.detach().flatten() for param in model.parameters()])


def apart(own: Tensor, right: Tensor) -> float:
    """max|a − b| / max|b|; infinite where the own weights are not numbers any more.

    >>> apart(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0])), apart(torch.tensor([math.nan]), torch.ones(1))
    (0.25, inf)
    """
    if not bool(own.isfinite().all()):
        return math.inf
    return float((own - right).abs().max() / right.abs().max().clamp_min(TINY))


@torch.no_grad()
def accuracy(model: nn.Module, dataset: DataSet) -> float:
    """The part of the test set that is labelled correctly."""
    correct = 0
    for numbers in torch.arange(len(dataset.test)).split(TEST_BATCH):
        batch = dataset.batch(dataset.test, numbers)
        correct += int((model(batch.inputs).argmax(1) == batch.labels).sum())
    return correct / len(dataset.test)


def train(
    dataset: DataSet,
    model: nn.Module,
    steps: Iterable[Tensor],
    average: Callable[[nn.Module], Any] | None = None,
) -> list[float]:
    """Train by SGD; `average` makes the gradients of all nodes one. Returns the mean loss of each step's samples."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=RATE), list[float]()
    for numbers in steps:
        batch = dataset.batch(dataset.train, numbers)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch.inputs), batch.labels)
        loss.backward()
        if average is not None:
            average(model)
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_in_parts(dataset: DataSet, model: nn.Module, steps: Iterable[Sequence[Tensor]]) -> None:
    """Train as `train` does on one machine that computes every batch in the parts of the nodes.

    Another number of samples is computed with other rounding errors, and a few steps amplify them: a ReLU flips. In
    the same parts a right average of two nodes has the same bits.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for parts in steps:
        optimizer.zero_grad()
        total = sum(map(len, parts))
        for numbers in parts:
            batch = dataset.batch(dataset.train, numbers)
            loss = nn.functional.cross_entropy(model(batch.inputs), batch.labels)
            (loss * (len(numbers) / total)).backward()
        optimizer.step()
