"""Finds the optimizer that a program makes from `model.parameters()` after the training was divided.

::

    sharded = shoal.zero(model)                               the training waits for an optimizer
    optimizer = torch.optim.AdamW(model.parameters())         knows whole parameters, and has no state yet
    optimizer.step()                                          torch calls the hook below: from now on the optimizer
                                                              updates this worker's slices, and its state is theirs
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from shoal.errors import ConfigError
from shoal.strategies.pieces.slices import Slices
from shoal.strategies.update import MakeOptimizer, Update, check_elementwise

Meet = Callable[[torch.optim.Optimizer, bool], None]
"""Tells a training that an optimizer is about to step, and whether with a closure."""

_trainings: list["WeakMethod[Meet]"] = []
_lock = threading.Lock()
_is_listening = False


def expect_optimizer(meet: Meet) -> None:
    """From now on, call this method of a training before any optimizer steps, as long as the training exists."""
    global _is_listening
    with _lock:
        _trainings[:] = [each for each in _trainings if each() is not None] + [WeakMethod(meet)]
        if not _is_listening:
            register_optimizer_step_pre_hook(_before_step)
            _is_listening = True


def _before_step(optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with _lock:
        trainings = [each() for each in _trainings]
    has_closure = any(each is not None for each in (*args[1:], kwargs.get("closure")))
    for meet in trainings:
        if meet is not None:
            meet(optimizer, has_closure)


def refuse_closure(optimizer: torch.optim.Optimizer) -> ConfigError:
    """A step with a closure computes gradients that nothing has summed over the workers."""
    return ConfigError(
        f"{type(optimizer).__name__}.step(closure) is not supported: the optimizer has a part of the parameters",
        "Compute the loss and its gradients before the step, and call step() without arguments.",
    )


def update_by(
    optimizer: torch.optim.Optimizer, model: nn.Module, trained: Mapping[str, Tensor], slices: Slices
) -> Update:
    """The update of slices by an optimizer of the whole parameters; its groups then list the slices."""
    name = type(optimizer).__name__
    check_elementwise(optimizer, otherwise="shoal.DistributedDataParallel")
    names = {id(param): name for name, param in trained.items()}
    known = names.keys() | {id(param) for param in model.parameters()}
    listed = [
        (id(param), number)
        for number, group in enumerate(optimizer.param_groups)
        for param in group["params"]
    ]
    if foreign := sum(each not in known for each, _ in listed):
        raise ConfigError(
            f"{name} updates {foreign} of {len(listed)} tensors that are not parameters of the model",
            "Make an optimizer for this model alone, after shoal.zero: torch.optim.AdamW(model.parameters()).",
        )
    if optimizer.state:
        raise ConfigError(
            f"{name} has state of whole parameters before its first step, and a worker has a part of them",
            "Load a saved one with sharded.load_state_dict(saved, optimizer). If its constructor makes it, as "
            f"Adagrad's does: shoal.zero(model, lambda params: {name}(params)).",
        )
    groups = {names[each]: number for each, number in listed if each in names}
    return Update(slices, _listing(optimizer), groups=(groups, len(optimizer.param_groups)))


def _listing(optimizer: torch.optim.Optimizer) -> MakeOptimizer:
    """As a function that makes an optimizer: this one, which then lists what it is given."""

    def make(params: Iterable[Tensor]) -> torch.optim.Optimizer:
        for group in optimizer.param_groups:
            group["params"] = []
        optimizer.param_groups[0]["params"] = [*params]
        return optimizer

    return make
