"""Optimizers that a function of the user's builds over given tensors: their checks, groups and state."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shoal.errors import ConfigError

EXAMPLE = "lambda params: torch.optim.AdamW(params, lr=1e-3)"


def build_over(
    make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer], params: Iterable[Tensor]
) -> torch.optim.Optimizer:
    """Call the function with these tensors; a ConfigError names what cannot be trained with.

    >>> build_over(lambda params: torch.optim.SGD(params, lr=0.1), [torch.zeros(3)]).param_groups[0]["lr"]
    0.1
    >>> build_over(torch.optim.LBFGS, [torch.zeros(3)])
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: LBFGS.step needs the argument 'closure': it computes the loss several times in one step...
    """
    check_function(make_optimizer, "a worker may have a part of the parameters only")
    given = list(params)
    optimizer: Any = make_optimizer(given)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(
            f"make_optimizer returned a value of type {type(optimizer).__name__}, expected a torch.optim.Optimizer",
            f"Return it: {EXAMPLE}.",
        )
    name = type(optimizer).__name__
    for argument in [*inspect.signature(type(optimizer).step).parameters.values()][1:]:
        if argument.default is argument.empty and argument.kind is argument.POSITIONAL_OR_KEYWORD:
            raise ConfigError(
                f"{name}.step needs the argument '{argument.name}': it computes the loss several times in one step, "
                "which no strategy does",
                "Use another optimizer, such as torch.optim.AdamW.",
            )
    known = {id(param) for param in given}
    updated: list[Tensor] = [param for group in optimizer.param_groups for param in group["params"]]
    foreign = sum(id(param) not in known for param in updated)
    if foreign:
        raise ConfigError(
            f"{name} updates {foreign} of {len(updated)} tensors that make_optimizer was not given, such as those of "
            "another copy of the model",
            f"Build it over the argument alone: {EXAMPLE}.",
        )
    return optimizer


def check_function(make_optimizer: Any, why: str) -> None:
    """Refuse a value that is no function, such as an optimizer; `why` says what a function is needed for."""
    if not callable(make_optimizer):
        raise ConfigError(
            f"make_optimizer is a value of type {type(make_optimizer).__name__}, expected a function that returns an "
            "optimizer",
            f"Pass {EXAMPLE}: {why}.",
        )


def groups_of(optimizer: torch.optim.Optimizer, params: Mapping[str, Tensor]) -> dict[str, int]:
    """The number of the parameter group of each parameter that the optimizer updates, by its name."""
    names = {id(param): name for name, param in params.items()}
    return {
        names[id(param)]: number
        for number, group in enumerate(optimizer.param_groups)
        for param in group["params"]
    }


def regroup(
    optimizer: torch.optim.Optimizer, slices: Mapping[str, Tensor], groups: Mapping[str, int], num_groups: int
) -> None:
    """Put slices into the groups of the whole parameters of the same names.

    A function may choose the group by a parameter's shape or identity (matrices decay, biases do not), and a flat slice
    has neither.
    """
    if len(optimizer.param_groups) != num_groups:
        raise ConfigError(
            f"make_optimizer returned {num_groups} parameter groups for the whole parameters, and "
            f"{len(optimizer.param_groups)} for slices of them",
            "Return the same groups, empty ones included, whatever the tensors' shapes are.",
        )
    for number, group in enumerate(optimizer.param_groups):
        group["params"] = [owned for name, owned in slices.items() if groups.get(name) == number]


def state_kinds(
    make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer], params: Sequence[Tensor]
) -> list[dict[str, torch.dtype]]:
    """For each parameter, the names and dtypes of the state that has one number for each of its elements.

    An optimizer of the same kind updates as many tensors of one element, on the CPU, with zero gradients. The
    parameters themselves are not changed, and nothing of their size is allocated.

    >>> weight = torch.zeros(1000, 1000)
    >>> state_kinds(lambda params: torch.optim.Adam(params), [weight])
    [{'exp_avg': torch.float32, 'exp_avg_sq': torch.float32}]
    >>> state_kinds(lambda params: torch.optim.SGD(params, lr=0.1), [weight])
    [{}]
    """
    probes = [torch.zeros(1, dtype=param.dtype) for param in params]
    for probe in probes:
        probe.grad = torch.zeros_like(probe)
    optimizer = make_optimizer(probes)
    optimizer.step()
    return [
        {
            key: value.dtype
            for key, value in optimizer.state.get(probe, {}).items()
            if isinstance(value, Tensor) and value.shape == probe.shape
        }
        for probe in probes
    ]


def state_bytes(
    make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer], params: Sequence[Tensor]
) -> int:
    """Bytes of the state of all parameters.

    >>> state_bytes(lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), [torch.zeros(10)])
    40
    """
    kinds = state_kinds(make_optimizer, params)
    return sum(
        param.numel() * dtype.itemsize
        for param, of_one in zip(params, kinds, strict=True)
        for dtype in of_one.values()
    )
