"""Metrics: sums over samples, which add up over batches and workers; then a value.

So a metric has the same value however the samples are divided, and no worker needs the outputs of the others. The
metrics of a run are tried once, on a few samples, before the first step.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.config.custom import calling, load
from shoal.config.metrics import ALWAYS, label_of, top_of
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, ShoalError
from shoal.models.common import evaluation_mode
from shoal.nested import Nested, call, described, first, length, mapped, part


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
    def sums(self, outputs: Any, labels: Any) -> Tensor:
        """Sums over the samples of a batch, always the same number of them: a vector."""

    @abstractmethod
    def value(self, sums: Tensor) -> float | Tensor:
        """The metric, from the sums over all samples, in float64."""


class MeanOf(Metric):
    """The mean of a function (outputs, labels) → a number for each sample, or for each position of one.

    As in the accuracy, numbers of labels below 0 do not count: padding, for example.
    """

    def __init__(self, numbers: Callable[[Any, Any], Tensor]) -> None:
        self._numbers = numbers

    def sums(self, outputs: Any, labels: Any) -> Tensor:
        """The sum of the numbers, and their count."""
        numbers = self._numbers(outputs, labels)
        if not isinstance(numbers, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"the function returned a value of type {type(numbers).__name__}, expected a tensor with one number "
                "for each sample"
            )
        if numbers.ndim == 0 or len(numbers) != length(labels):
            raise ConfigError(
                f"the function returned {_shape(numbers)} for {length(labels)} samples, expected one number for each"
            )
        if isinstance(labels, Tensor) and not labels.is_floating_point() and labels.shape == numbers.shape:
            numbers = numbers[labels >= 0]
        numbers = numbers.double()
        return torch.stack([numbers.sum(), numbers.new_tensor(numbers.numel())])

    def value(self, sums: Tensor) -> float:
        """The mean."""
        return (sums[0] / sums[1]).item()


@final
class TopKAccuracy(MeanOf):
    """The fraction of labels that are among the k largest outputs.

    >>> outputs, labels = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), torch.tensor([1, 0])
    >>> metric = TopKAccuracy(2)
    >>> metric.value(metric.sums(outputs, labels))
    0.5
    """

    def __init__(self, k: int) -> None:
        super().__init__(self._hits)
        self._k = k

    def _hits(self, outputs: Tensor, labels: Tensor) -> Tensor:
        _require_classes(labels)
        if self._k > outputs.shape[-1]:
            raise ConfigError(
                f"the model has only {outputs.shape[-1]} outputs", f"Use top{outputs.shape[-1]} or less."
            )
        best = outputs.topk(self._k, dim=-1).indices
        return (best == labels.unsqueeze(-1)).any(-1)


@final
class Perplexity(MeanOf):
    """exp of the mean cross entropy of a label: how many labels the model hesitates between.

    >>> metric = Perplexity()
    >>> round(metric.value(metric.sums(torch.zeros(4, 8), torch.tensor([0, 1, 2, 3]))), 6)
    8.0
    """

    higher_is_better = False

    def __init__(self) -> None:
        super().__init__(self._cross_entropies)

    def _cross_entropies(self, outputs: Tensor, labels: Tensor) -> Tensor:
        _require_classes(labels)
        classes = labels.flatten().long().clamp_min(0)  # labels below 0 are left out later
        each = F.cross_entropy(outputs.flatten(0, -2).float(), classes, reduction="none")
        return each.view(labels.shape)

    def value(self, sums: Tensor) -> float:
        """Infinite where the mean is too large for exp."""
        try:
            return math.exp(super().value(sums))
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


def _require_classes(labels: Nested) -> None:
    if not isinstance(labels, Tensor):
        raise ConfigError(f"labels must be classes in one tensor, but they are {described(labels)}")
    if labels.is_floating_point():
        raise ConfigError(f"labels must be classes, but they are {labels.dtype}")


def _shape(tensor: Tensor) -> str:
    return f"a tensor of shape {list(tensor.shape)}" if tensor.ndim else "a single number"


@dataclass(frozen=True)
class Measure:
    """A metric under its name, with the number of its sums: workers that have no outputs must know it, too."""

    name: str
    metric: Metric
    width: int

    @property
    def label(self) -> str:
        """What its values are called."""
        return label_of(self.name)

    def sums(self, outputs: Nested, labels: Nested) -> Tensor:
        """The sums of a batch, in float64."""
        found = _sums(self.name, self.metric, outputs, labels)
        if len(found) != self.width:
            raise ConfigError(
                f"metric {self.name} returned {len(found)} sums for {length(labels)} samples, and {self.width} before",
                "Return the same number of sums for every batch.",
            )
        return found

    def value(self, sums: Tensor) -> float:
        """The metric, from the sums over all samples; NaN if they lack what it divides by."""
        with _named(self.name):
            try:
                value = self.metric.value(sums)
            except ZeroDivisionError:
                return math.nan
        if isinstance(value, Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(
                f"metric {self.name} has a value of type {type(value).__name__}, expected a number"
            )
        return float(value)


@torch.no_grad()
def measures_for(
    names: Sequence[str], model: nn.Module, inputs: Nested, labels: Nested
) -> tuple[Measure, ...]:
    """Build the metrics, and try each on the model's outputs for a few samples; a ConfigError says what is wrong.

    Loss and accuracy are part of every evaluation, and not among them. Costs one forward pass if there is any metric.
    """
    if "accuracy" in names:
        with _named("accuracy"):
            _require_classes(labels)
    chosen = [name for name in names if name not in ALWAYS]
    if not chosen:
        return ()
    device = next((param.device for param in model.parameters()), first(inputs).device)
    with evaluation_mode(model):
        outputs = call(model, mapped(lambda tensor: tensor.to(device), inputs))
    labels = mapped(lambda tensor: tensor.to(first(outputs).device), labels)
    return tuple(_tried(name, build_metric(name), outputs, labels) for name in chosen)


def _tried(name: str, metric: Metric, outputs: Nested, labels: Nested) -> Measure:
    """The metric, if the sums of single samples add up to those of all, and its value is a number."""
    together = _sums(name, metric, outputs, labels)
    measure = Measure(name, metric, len(together))
    total = sum(
        (measure.sums(*(part(each, i, i + 1) for each in (outputs, labels))) for i in range(length(labels))),
        torch.zeros_like(together),
    )
    if not torch.allclose(together, total, rtol=1e-3, atol=1e-9, equal_nan=True):
        raise ConfigError(
            f"metric {name} of {length(labels)} samples has the sums {_listed(together)}, but those of the single "
            f"samples add up to {_listed(total)}",
            "Return sums over the samples, not means.",
        )
    measure.value(together)
    return measure


def _sums(name: str, metric: Metric, outputs: Nested, labels: Nested) -> Tensor:
    with _named(name):
        found = metric.sums(outputs, labels)
    if not isinstance(found, Tensor) or found.ndim != 1 or not len(found):  # pyright: ignore[reportUnnecessaryIsInstance]
        what = list(found.shape) if isinstance(found, Tensor) else type(found).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"the sums of metric {name} are {what}, expected a vector", "Return torch.stack([…]) of the sums."
        )
    return found.detach().double()


@contextmanager
def _named(name: str) -> Generator[None]:
    """Put the metric's name before what is wrong with it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"metric {name}: {error.message}", error.hint) from error
    except ShoalError:
        raise
    except Exception as error:  # any exception: this runs the user's code
        first = (str(error) or repr(error)).splitlines()[0]
        raise ConfigError(f"metric {name} raised {type(error).__name__}: {first}") from error


def _listed(sums: Tensor) -> str:
    return ", ".join(f"{value:.6g}" for value in sums.tolist()[:4])
