"""The metrics of a run, each tried once on a few samples before the first step."""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shoal.config.metrics import ALWAYS, label_of
from shoal.errors import ConfigError, ShoalError
from shoal.models.evaluation_mode import evaluation_mode
from shoal.models.metrics import Metric, build_metric


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

    def sums(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sums of a batch, in float64."""
        found = _sums(self.name, self.metric, outputs, labels)
        if len(found) != self.width:
            raise ConfigError(
                f"metric {self.name} returned {len(found)} sums for {len(labels)} samples, and {self.width} before",
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
    names: Sequence[str], model: nn.Module, inputs: Tensor, labels: Tensor
) -> tuple[Measure, ...]:
    """Build the metrics, and try each on the model's outputs for a few samples; a ConfigError says what is wrong.

    Loss and accuracy are part of every evaluation, and not among them. Costs one forward pass if there is any metric.
    """
    if "accuracy" in names and labels.is_floating_point():
        raise ConfigError(
            f"metric accuracy needs labels that are classes, but they are {labels.dtype}", "Leave it out."
        )
    chosen = [name for name in names if name not in ALWAYS]
    if not chosen:
        return ()
    device = next((param.device for param in model.parameters()), inputs.device)
    with evaluation_mode(model):
        outputs = model(inputs.to(device))
    return tuple(_tried(name, build_metric(name), outputs, labels.to(outputs.device)) for name in chosen)


def _tried(name: str, metric: Metric, outputs: Tensor, labels: Tensor) -> Measure:
    """The metric, if the sums of single samples add up to those of all, and its value is a number."""
    together = _sums(name, metric, outputs, labels)
    measure = Measure(name, metric, len(together))
    total = sum(
        (measure.sums(outputs[i : i + 1], labels[i : i + 1]) for i in range(len(labels))),
        torch.zeros_like(together),
    )
    if not torch.allclose(together, total, rtol=1e-3, atol=1e-9, equal_nan=True):
        raise ConfigError(
            f"metric {name} of {len(labels)} samples has the sums {_listed(together)}, but those of the single samples "
            f"add up to {_listed(total)}",
            "Return sums over the samples, not means.",
        )
    measure.value(together)
    return measure


def _sums(name: str, metric: Metric, outputs: Tensor, labels: Tensor) -> Tensor:
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
