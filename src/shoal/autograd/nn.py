"""Layers, and the conversion of a torch module into a layer.

A parameter is a :class:`Variable` whose `value` is a plain leaf tensor. `backward` writes `value.grad`, so torch's
optimizers take `[parameter.value for parameter in nn.parameters(layer)]`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, final

from torch import nn

import shoal.autograd.derived as derived
import shoal.autograd.ops as ops
from shoal.autograd.variable import Operand, Variable
from shoal.errors import AutogradError


class Layer(Protocol):
    """A function with parameters."""

    def __call__(self, x: Operand) -> Variable:
        """The layer's output."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """Every parameter once, with the name that torch's `named_parameters` gives it."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Apply:
    """One function, called with the input and with its own parameters by name (an activation has none)."""

    function: Callable[..., Variable]
    own: Mapping[str, Variable] = field(default_factory=dict[str, Variable])

    def __call__(self, x: Operand) -> Variable:
        """The layer's output."""
        return self.function(x, **self.own)

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """The function's own parameters."""
        return iter(self.own.items())


@final
@dataclass(frozen=True, eq=False)
class Sequential:
    """One layer after another; the name of a parameter is `layer.parameter`."""

    layers: tuple[tuple[str, Layer], ...]

    def __call__(self, x: Any) -> Variable:
        """The last layer's output."""
        for _, layer in self.layers:
            x = layer(x)
        return x

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """Every parameter once, in order, also if several layers share it."""
        seen: set[Variable] = set()
        for prefix, layer in self.layers:
            for name, parameter in layer.named_parameters():
                if parameter not in seen:
                    seen.add(parameter)
                    yield f"{prefix}.{name}", parameter


def parameters(layer: Layer) -> list[Variable]:
    """A layer's parameters, in order."""
    return [parameter for _, parameter in layer.named_parameters()]


def from_torch(module: nn.Module) -> Layer:
    """A torch module as a layer that computes with the same memory.

    Each parameter is an alias of the module's (`param.detach()`): an optimizer step on one changes the other, and
    torch's autograd is not involved. The gradient is in the alias's `.grad`, not in the module's. Not safe: after
    `param.data = …` the module has other memory than the layer.

    >>> module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> [name for name, _ in from_torch(module).named_parameters()]
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """
    return _convert(module, "", {})


def _convert(module: nn.Module, path: str, aliases: dict[nn.Parameter, Variable]) -> Layer:
    def below(name: str) -> str:
        return f"{path}.{name}" if path else name

    if type(module) is nn.Sequential:
        children = module.named_children()
        return Sequential(tuple((name, _convert(child, below(name), aliases)) for name, child in children))
    function_of = _FUNCTIONS.get(type(module))
    reason = _refusal(module) if function_of is not None else "is not supported by this engine"
    if function_of is None or reason:
        known = ", ".join(kind.__name__ for kind in (nn.Sequential, *_FUNCTIONS))
        raise AutogradError(
            f"{type(module).__name__}{f' ({path})' if path else ''} {reason}",
            f"Supported: {known}. Train other models with --engine torch.",
        )
    own: dict[str, Variable] = {}
    for name, param in module.named_parameters(recurse=False):
        own[name] = aliases.setdefault(param, Variable(param.detach(), name=below(name)))
    return Apply(function_of(module), own)


def _refusal(module: Any) -> str:
    """Why a module of a supported type cannot be converted; empty when it can."""
    if isinstance(module, nn.Conv2d):
        if module.groups != 1 or module.dilation != (1, 1):
            return (
                f"has groups={module.groups} and dilation={module.dilation}; only 1 and (1, 1) are supported"
            )
        if module.padding_mode != "zeros" or isinstance(module.padding, str):
            return f"pads with {module.padding_mode!r} by {module.padding!r}; only zeros by numbers are supported"
    if isinstance(module, nn.MaxPool2d) and (
        module.ceil_mode or module.return_indices or derived.pair(module.dilation) != (1, 1)
    ):
        return "has dilation, ceil_mode or return_indices, which are not supported"
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) != (1, -1):
        return f"flattens axes {module.start_dim} to {module.end_dim}; only 1 to -1 is supported"
    return ""


_FUNCTIONS: dict[type[nn.Module], Callable[[Any], Callable[..., Variable]]] = {
    nn.Linear: lambda module: derived.linear,
    nn.Conv2d: lambda module: partial(derived.conv2d, stride=module.stride, padding=module.padding),
    nn.MaxPool2d: lambda module: partial(
        derived.max_pool2d, kernel=module.kernel_size, stride=module.stride, padding=module.padding
    ),
    nn.Flatten: lambda module: derived.flatten,
    nn.ReLU: lambda module: ops.relu,
    nn.Tanh: lambda module: ops.tanh,
    nn.Sigmoid: lambda module: ops.sigmoid,
}
"""The function of a module; it takes the module's parameters by their names."""
