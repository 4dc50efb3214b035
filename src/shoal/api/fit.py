"""`shoal.fit`: train objects of a program or a notebook, under any strategy."""

import copy
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from shoal.api.callbacks import Callback
from shoal.api.keywords import FitSettings
from shoal.api.settings import MODULE, config_of, resumed_config, tree_of
from shoal.api.train import observed
from shoal.config.arguments import checks_arguments
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder
from shoal.models.common import check_has_values
from shoal.models.losses import of_pair
from shoal.models.metrics import Metric
from shoal.nested import length
from shoal.optim.over import check_function
from shoal.strategies.pieces.state import load_weights
from shoal.strategies.strategy import Strategy
from shoal.training.result import Result
from shoal.training.weights import read_model

Loss = Callable[[Any, Any], Any]
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
Measured = Callable[[Any, Any], Tensor]

_IN_USE = threading.Lock()


@checks_arguments
def fit(
    model: str | nn.Module | Callable[[], nn.Module],
    data: Any,
    loss: str | Loss = "cross_entropy",
    make_optimizer: str | dict[str, Any] | MakeOptimizer = "adam",
    *,
    metrics: str | Sequence[str | Metric | Measured] = (),
    strategy: str | dict[str, Any] | Callable[[Any], Strategy] | None = None,
    callbacks: Sequence[Callback] = (),
    resume: str | Path | None = None,
    progress: bool = True,
    **settings: Unpack[FitSettings],
) -> Result:
    """Train a model on data, both of one's own, and return the numbers of the run. The model then has the new weights.

        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        shoal.fit(model, (inputs, labels), make_optimizer=lambda params: torch.optim.SGD(params, lr=0.1),
                  strategy="ddp", workers=2, epochs=3)

    - `data`: tensors (inputs, labels), a torch Dataset, an iterable, the path of a folder or file, a pair (train, test)
      of these, or a function that returns one; or the name of a data set of ours.
    - `loss(outputs, labels)` returns the mean over the samples, as torch's losses do; or the name of one of ours.
    - `make_optimizer(params)` returns a torch optimizer: a function, because a strategy may give each worker a part of
      the parameters. Or the name of one of ours, or a dictionary with its settings.
    - `metrics`: names ("top5"), functions (outputs, labels) → one number for each sample, or objects of classes that
      derive from `shoal.Metric`.
    - `strategy`: a name, or a class that derives from `shoal.ReplicaSync`.
    - Other settings are those of `shoal.train`, functions of the program included: `schedule=lambda step, total: …`.
      `resume` is the folder of a stopped run of the same objects.

    Worker processes are copies of this one and compute with one thread each; with launcher="threads" they are threads.
    """
    with _module_in_memory() as module:
        named = _named_in(module, settings, model, data, loss, make_optimizer, metrics, strategy)
        if resume is None:
            config, folder = config_of(None, named), None
        else:
            config, folder = (
                resumed_config(Path(resume), tree_of(named), trust_code=True),
                RunFolder(Path(resume)),
            )
        if config.memory.budget is not None:
            raise ConfigError(
                "fit does not support memory.budget: settings are tried in new processes, which do not have the "
                "objects of this one",
                "Choose other settings of memory, such as memory={'checkpoint': 1}.",
            )
        result = observed(config, callbacks, progress, folder, forks=True)
    if isinstance(model, nn.Module) and result.status == "completed":
        load_weights(model, read_model(RunFolder(Path(result.run)).model).weights)
    return result


@contextmanager
def _module_in_memory() -> Generator[ModuleType]:
    """A module for the objects that exists in memory only: settings name them as any of a user's own.

    Threads find the module where it is; copies of this process have it, too.
    """
    if not _IN_USE.acquire(blocking=False):
        raise ConfigError("another shoal.fit is at work in this process", "Call them one after the other.")
    try:
        sys.modules[MODULE] = module = ModuleType(MODULE, "Objects that a program gave to shoal.fit.")
        yield module
    finally:
        sys.modules.pop(MODULE, None)
        _IN_USE.release()


def _named_in(
    module: ModuleType,
    settings: Mapping[str, Any],
    model: str | nn.Module | Callable[[], nn.Module],
    data: Any,
    loss: str | Loss,
    make_optimizer: str | dict[str, Any] | MakeOptimizer,
    metrics: str | Sequence[str | Metric | Measured],
    strategy: str | dict[str, Any] | Callable[[Any], Strategy] | None,
) -> dict[str, Any]:
    """Put the objects, and functions among the settings, into the module; the settings that name them."""
    if not isinstance(make_optimizer, str | dict):
        check_function(make_optimizer, "each worker has its own copy of the model, or a part of it")
    if isinstance(model, nn.Module):
        check_has_values(model)
    functions: dict[str, tuple[Any, Any]] = {
        "model": (model, (lambda: _copy(model)) if isinstance(model, nn.Module) else model),
        "data": (data, data if isinstance(data, str) or callable(data) else lambda: data),
        "loss": (loss, loss if isinstance(loss, str) else _summed(loss)),
        "optimizer": (make_optimizer, make_optimizer),
    }
    if strategy is not None:
        functions["strategy"] = strategy, strategy
    if metrics:
        of_metrics = metrics if isinstance(metrics, str) else [_name_metric(module, each) for each in metrics]
        functions["metrics"] = metrics, of_metrics
    if taken := functions.keys() & settings.keys():
        raise ConfigError(f"fit takes {', '.join(sorted(taken))} as an argument of its own, and no setting")
    named: dict[str, Any] = {}
    for kind, (given, value) in (functions | {key: (each, each) for key, each in settings.items()}).items():
        named[kind] = value
        if callable(value):
            own = kind.replace(".", "_")
            name = _name_of(given, own)
            name = own if hasattr(module, name) else name
            setattr(module, name, value)
            named[kind] = f"{MODULE}:{name}"
    return named


def _name_metric(module: ModuleType, metric: str | Metric | Measured) -> str:
    """The name of a metric in the settings; a function or an object becomes one of the module's."""
    if isinstance(metric, str):
        return metric
    name = type(metric).__name__ if isinstance(metric, Metric) else _name_of(metric, "metric")
    if hasattr(module, name):
        raise ConfigError(f"two objects are called {name}", "Rename the metric.")
    setattr(module, name, (lambda: metric) if isinstance(metric, Metric) else metric)
    return f"{MODULE}:{name}"


def _name_of(given: Any, otherwise: str) -> str:
    """The name of a function, or of a model's class, for the run folder and the display."""
    name = type(given).__name__ if isinstance(given, nn.Module) else getattr(given, "__name__", "")
    return name if name.isidentifier() else otherwise


def _copy(model: nn.Module) -> nn.Module:
    """A worker's own copy of the model."""
    try:
        return copy.deepcopy(model)
    except Exception as error:  # any exception: a module may hold anything
        raise ConfigError(
            f"the model cannot be copied for a worker: {type(error).__name__}: {error}",
            "Give a function that returns the model.",
        ) from error


def _summed(loss: Loss) -> Loss:
    """The sum over the samples of a loss that returns their mean; a pair (sum, count) as it is."""

    def summed(outputs: Any, labels: Any) -> Any:
        value, count = of_pair(loss(outputs, labels))
        if count is not None:
            return value, count
        return value * length(labels) if isinstance(value, Tensor) else value

    setattr(summed, "takes_mean", True)  # noqa: B010 (a function has any attribute; for errors about the user's loss)
    return summed
