"""Layers, and how a torch module becomes one of ours.

A parameter is a :class:`Variable` whose `value` is a plain leaf tensor. `backward` writes `value.grad`, so
any optimizer of torch takes `[parameter.value for parameter in layer.parameters()]`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
class Linear:
    """y = x Wᵀ + b, with W stored as [out, in]."""

    weight: Variable
    bias: Variable | None = None

    def __call__(self, x: Operand) -> Variable:
        """The layer's output."""
        return derived.linear(x, self.weight, self.bias)

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """`weight` and, if there is one, `bias`."""
        return _weight_and_bias(self.weight, self.bias)


@final
@dataclass(frozen=True, eq=False)
class Conv2d:
    """y = x ⋆ w + b, with w stored as [out, in, height, width]."""

    weight: Variable
    bias: Variable | None = None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    def __call__(self, x: Operand) -> Variable:
        """The layer's output."""
        y = ops.conv2d(x, self.weight, stride=self.stride, padding=self.padding)
        return y if self.bias is None else ops.add(y, ops.reshape(self.bias, shape=(1, -1, 1, 1)))

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """`weight` and, if there is one, `bias`."""
        return _weight_and_bias(self.weight, self.bias)


@final
@dataclass(frozen=True, eq=False)
class Function:
    """A layer without parameters: an activation, a pooling, a change of shape."""

    function: Callable[[Any], Variable]

    def __call__(self, x: Operand) -> Variable:
        """The layer's output."""
        return self.function(x)

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """Nothing."""
        return iter(())


@final
@dataclass(frozen=True, eq=False)
class Sequential:
    """One layer after another; a parameter's name is its layer's name, a dot, and its own."""

    layers: tuple[tuple[str, Layer], ...]

    def __call__(self, x: Any) -> Variable:
        """The last layer's output."""
        for _, layer in self.layers:
            x = layer(x)
        return x

    def named_parameters(self) -> Iterator[tuple[str, Variable]]:
        """Every parameter once, in order: a layer used twice has one set of them."""
        seen: set[Variable] = set()
        for prefix, layer in self.layers:
            for name, parameter in layer.named_parameters():
                if parameter not in seen:
                    seen.add(parameter)
                    yield f"{prefix}.{name}", parameter


def parameters(layer: Layer) -> list[Variable]:
    """A layer's parameters, in order."""
    return [parameter for _, parameter in layer.named_parameters()]


def flatten(x: Any) -> Variable:
    """[samples, …] as [samples, features]."""
    return x if x.ndim == 2 else ops.reshape(x, shape=(x.shape[0], math.prod(x.shape[1:])))


def from_torch(module: nn.Module) -> Layer:
    """A torch module as a layer of ours that computes with the very same memory.

    Each parameter is an alias of the module's (`param.detach()`): an optimizer step on one is seen by the
    other, and torch's autograd is not involved. The gradient lies in the alias's `.grad`, not the module's.
    Not safe: giving the module's parameters other memory afterwards (`param.data = …`) parts the two.

    >>> module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> [name for name, _ in from_torch(module).named_parameters()]
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """
    return _lower(module, "", {})


def _lower(module: nn.Module, path: str, aliases: dict[nn.Parameter, Variable]) -> Layer:
    if type(module) is nn.Sequential:
        layers = [
            (name, _lower(child, f"{path}.{name}".lstrip("."), aliases))
            for name, child in module.named_children()
        ]
        return Sequential(tuple(layers))
    lower = _LOWERINGS.get(type(module))
    reason = _refusal(module) if lower is not None else "has no counterpart in this engine"
    if lower is None or reason:
        known = ", ".join(kind.__name__ for kind in (nn.Sequential, *_LOWERINGS))
        raise AutogradError(
            f"{type(module).__name__}{f' ({path})' if path else ''} {reason}",
            f"It can be made of {known}; train other models with torch's own engine.",
        )

    def variable(name: str) -> Any:
        param = getattr(module, name, None)
        if param is None:
            return None
        if param not in aliases:
            aliases[param] = Variable(param.detach(), name=f"{path}.{name}".lstrip("."))
        return aliases[param]

    return lower(module, variable)


def _refusal(module: Any) -> str:
    """Why a module of a known type cannot be lowered all the same; empty when it can."""
    if isinstance(module, nn.Conv2d):
        if module.groups != 1 or module.dilation != (1, 1):
            return (
                f"has groups={module.groups} and dilation={module.dilation}, and only 1 and (1, 1) are known"
            )
        if module.padding_mode != "zeros" or isinstance(module.padding, str):
            return f"pads with {module.padding_mode!r} by {module.padding!r}, and only zeros by numbers are known"
    if isinstance(module, nn.MaxPool2d) and (
        module.ceil_mode or module.return_indices or _pair(module.dilation) != (1, 1)
    ):
        return "has dilation, ceil_mode or return_indices, which are not known"
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) != (1, -1):
        return f"flattens axes {module.start_dim} to {module.end_dim}, and only 1 to -1 is known"
    return ""


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _lower_max_pool(module: Any, variable: Callable[[str], Any]) -> Layer:
    kernel, stride, padding = _pair(module.kernel_size), _pair(module.stride), _pair(module.padding)
    return Function(lambda x: ops.max_pool2d(x, kernel=kernel, stride=stride, padding=padding)[0])


_LOWERINGS: dict[type[nn.Module], Callable[[Any, Callable[[str], Any]], Layer]] = {
    nn.Linear: lambda module, variable: Linear(variable("weight"), variable("bias")),
    nn.Conv2d: lambda module, variable: Conv2d(
        variable("weight"), variable("bias"), _pair(module.stride), _pair(module.padding)
    ),
    nn.MaxPool2d: _lower_max_pool,
    nn.Flatten: lambda module, variable: Function(flatten),
    nn.ReLU: lambda module, variable: Function(ops.relu),
    nn.Tanh: lambda module, variable: Function(ops.tanh),
    nn.Sigmoid: lambda module, variable: Function(ops.sigmoid),
}


def _weight_and_bias(weight: Variable, bias: Variable | None) -> Iterator[tuple[str, Variable]]:
    yield "weight", weight
    if bias is not None:
        yield "bias", bias
