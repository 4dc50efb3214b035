"""The layers of a model in the order in which they are applied: what a pipeline or an RPC model is cut from."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from shoal.errors import ConfigError


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
