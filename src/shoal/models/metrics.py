"""Metrics: sums over samples, which add up over batches and workers; then a value.

So a metric has the same value however the samples are divided, and no worker needs the outputs of the others.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.config.custom import calling, load
from shoal.config.metrics import top_of
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError


class Metric(ABC):
    """A number that an evaluation reports. Derive from it for a metric that is not a mean over samples.

    class Recall(shoal.Metric):
        def sums(self, outputs, labels):
            found = outputs.argmax(1) == 1
            return torch.stack([(found & (labels == 1)).sum(), (labels == 1).sum()])

        def value(self, sums):
            return sums[0] / sums[1]
    """

    higher_is_better: bool = True
    """Which values early stopping and the best checkpoint prefer."""

    @abstractmethod
    def sums(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Sums over the samples of a batch, always the same number of them: a vector."""

    @abstractmethod
    def value(self, sums: Tensor) -> float | Tensor:
        """The metric, from the sums over all samples, in float64."""


@final
class MeanOf(Metric):
    """The mean of a function (outputs, labels) → a number for each sample, or for each position of one."""

    def __init__(self, numbers: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._numbers = numbers

    def sums(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of the numbers, and their count."""
        numbers = self._numbers(outputs, labels)
        if not isinstance(numbers, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"the function returned a value of type {type(numbers).__name__}, expected a tensor with one number "
                "for each sample"
            )
        if numbers.ndim == 0 or len(numbers) != len(labels):
            raise ConfigError(
                f"the function returned {_shape(numbers)} for {len(labels)} samples, expected one number for each"
            )
        numbers = numbers.double()
        return torch.stack([numbers.sum(), numbers.new_tensor(numbers.numel())])

    def value(self, sums: Tensor) -> float:
        """The mean."""
        return (sums[0] / sums[1]).item()


@final
class TopKAccuracy(Metric):
    """The fraction of labels that are among the k largest outputs.

    >>> outputs, labels = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), torch.tensor([1, 0])
    >>> metric = TopKAccuracy(2)
    >>> metric.value(metric.sums(outputs, labels))
    0.5
    """

    def __init__(self, k: int) -> None:
        self._k = k

    def sums(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Labels among the best, and labels."""
        _require_classes(labels)
        if self._k > outputs.shape[-1]:
            raise ConfigError(
                f"the model has only {outputs.shape[-1]} outputs", f"Use top{outputs.shape[-1]} or less."
            )
        best = outputs.topk(self._k, dim=-1).indices
        hits = (best == labels.unsqueeze(-1)).any(-1).double()
        return torch.stack([hits.sum(), hits.new_tensor(hits.numel())])

    def value(self, sums: Tensor) -> float:
        """The fraction."""
        return (sums[0] / sums[1]).item()


@final
class Perplexity(Metric):
    """exp of the mean cross entropy of a label: how many labels the model hesitates between.

    >>> metric = Perplexity()
    >>> round(metric.value(metric.sums(torch.zeros(4, 8), torch.tensor([0, 1, 2, 3]))), 6)
    8.0
    """

    higher_is_better = False

    def sums(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """−Σ log softmax(output)[label], and labels."""
        _require_classes(labels)
        each = F.cross_entropy(outputs.flatten(0, -2).float(), labels.flatten().long(), reduction="none")
        each = each.double()
        return torch.stack([each.sum(), each.new_tensor(each.numel())])

    def value(self, sums: Tensor) -> float:
        """Infinite where the mean is too large for exp."""
        mean = (sums[0] / sums[1]).item()
        try:
            return math.exp(mean)
        except OverflowError:
            return math.inf


def build_metric(name: str) -> Metric:
    """The metric of a name: `top5`, `perplexity`, or the user's own `package.module:function`.

    A function takes (outputs, labels) and returns one number for each sample; the metric is their mean. A class that
    derives from `Metric`, or a function that returns an object of one, is called without arguments.
    """
    if ":" not in name:
        k = top_of(name)
        return Perplexity() if k is None else TopKAccuracy(k)
    custom = Custom(name=name)
    with calling("metrics", custom):
        found = load("metrics", custom)
        if not isinstance(found, type) and not _needs_nothing(found):
            return MeanOf(found)
        try:
            metric = found()
        except TypeError as error:
            raise ConfigError(f"metric {name} cannot be constructed: {error}") from error
    if not isinstance(metric, Metric):
        raise ConfigError(
            f"metric {name} returned a value of type {type(metric).__name__}, expected a shoal.Metric",
            "Derive a class from shoal.Metric, or name a function (outputs, labels) → one number for each sample.",
        )
    return metric


def _needs_nothing(function: Callable[..., object]) -> bool:
    """Whether a function can be called without arguments: then it makes the metric."""
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    return True


def _require_classes(labels: Tensor) -> None:
    if labels.is_floating_point():
        raise ConfigError(f"labels must be classes, but they are {labels.dtype}")


def _shape(tensor: Tensor) -> str:
    return f"a tensor of shape {list(tensor.shape)}" if tensor.ndim else "a single number"
