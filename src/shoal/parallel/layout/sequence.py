"""The layers of a model in the order in which they are applied: what a pipeline or an RPC model is cut from."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError
from shoal.models.common import evaluation_mode


class NamedLayer(NamedTuple):
    """One step of the composition that a model computes."""

    name: str
    module: nn.Module


def layers_of(model: nn.Module) -> list[NamedLayer]:
    """The layers whose composition is the model's forward pass.

    `nn.Sequential` is taken apart, also where it is nested. Any other model declares its order: its method
    `as_sequence()` returns (name, module) pairs, and applying these modules one after the other must give what
    `forward` gives. A module in which data takes several paths, such as a residual block, is one layer.

    >>> [name for name, _ in layers_of(nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(4, 2), nn.ReLU())))]
    ['0', '1.0', '1.1']
    """
    if not (_is_plain_sequence(model) or hasattr(model, "as_sequence")):
        raise ConfigError(
            f"cannot cut {type(model).__name__} into stages: the order of its layers is unknown",
            "Make the model an nn.Sequential, or give it a method as_sequence() that returns (name, module) pairs.",
        )
    return list(_flat("", model))


def _flat(name: str, module: nn.Module) -> Iterator[NamedLayer]:
    prefix = f"{name}." if name else ""
    if _is_plain_sequence(module):
        # `named_children` would leave out a layer that is used a second time.
        for key, child in module._modules.items():  # pyright: ignore[reportPrivateUsage]
            if child is not None:
                yield from _flat(prefix + key, child)
    elif hasattr(module, "as_sequence"):
        for key, child in _declared(module):
            yield NamedLayer(prefix + key, child)
    else:
        yield NamedLayer(name, module)


def _declared(module: Any) -> list[tuple[str, nn.Module]]:
    pairs = list(module.as_sequence())
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], nn.Module)):
            raise ConfigError(
                f"{type(module).__name__}.as_sequence() returned {type(pair).__name__} entries, "
                "expected (name, module) pairs"
            )
    return pairs


def _is_plain_sequence(module: nn.Module) -> bool:
    """Whether calling the module is nothing but calling its children in order."""
    if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
        return False
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks  # pyright: ignore[reportPrivateUsage]
    return not any(hooks)


@torch.no_grad()
def check_order(model: nn.Module, stages: Sequence[Sequence[NamedLayer]], sample: Tensor) -> None:
    """Refuse stages that do not compute what the model does, and outputs of a stage that cannot be sent.

    Tried on the inputs of a few samples, in evaluation mode.
    """
    given: dict[nn.Module, Any] = {}
    """The input of each layer in the model's own pass."""

    def enter(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            given.setdefault(module, inputs[0].clone())  # a layer may write into its input

    with evaluation_mode(model):
        modules = {layer.module for stage in stages for layer in stage}
        hooks = [module.register_forward_pre_hook(enter) for module in modules]
        try:
            expected = model(sample)
        finally:
            for hook in hooks:
                hook.remove()
        value: Any = sample.clone()
        previous = ""
        for stage in stages:
            _check_sendable(value, previous)
            for layer in stage:
                # Only the first use of a layer is compared: a layer may be used twice.
                _check_same(
                    given.pop(layer.module, value), value, model, f"the input of '{layer.name}'", previous
                )
                value, previous = layer.module(value), layer.name
        _check_same(expected, value, model, "the result", previous)


def _check_sendable(value: Any, previous: str) -> None:
    if not isinstance(value, Tensor):
        raise ConfigError(
            f"cannot cut after '{previous}': its output is a {type(value).__name__}, expected one tensor",
            "Cut elsewhere: name the layers at which a stage begins. Or make one module of the layers around it.",
        )


def _check_same(own: Any, value: Any, model: nn.Module, what: str, previous: str) -> None:
    if not (isinstance(own, Tensor) and isinstance(value, Tensor)):
        return
    first, second = own.double(), value.double()
    largest = first.abs().max().item() if own.numel() else 0.0
    if own.shape != value.shape or not torch.allclose(first, second, 1e-3, 1e-3 * largest, equal_nan=True):
        source = f"the output of '{previous}'" if previous else "the model's input"
        raise ConfigError(
            f"the layers of {type(model).__name__} in order do not compute what its forward pass does: "
            f"{what} is not {source}",
            "Make one module of layers with a skip connection, or with a function between them.",
        )
