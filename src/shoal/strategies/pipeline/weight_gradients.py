"""Splits backward in two: gradients of inputs now, gradients of weights later, for one or for many micro-batches.

A linear layer y = x·Wᵀ + b has two gradients that do not depend on each other:

    ∂L/∂x = g·W                the previous stage waits for this one
    ∂L/∂W = gᵀ·x, ∂L/∂b = Σg   only the update needs these

`WeightGradients` changes the linear and convolution layers of a model so that backward computes the first and sets
(x, g) aside for the second. Adding gᵀ·x to the gradient is then one matrix product with an addend; autograd would
compute a new matrix and add it, which reads and writes the size of the weights three times for each micro-batch. Of
several micro-batches, x and g can be joined first: one product instead of many small ones.

All other layers have small weights, or unknown ones: autograd computes their gradients together with those of inputs.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from sys import getrefcount
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_OWN_REFERENCES = 3
"""References to a buffer that the program does not use: the table's, a variable's, and `getrefcount`'s argument."""


class SetAside(NamedTuple):
    """What the weight gradient of one layer and one micro-batch needs."""

    layer: Any
    weight: Tensor
    bias: Tensor | None
    inputs: Tensor
    gradient: Tensor
    """Of the layer's output."""


class _Rule(NamedTuple):
    """How a kind of layer computes."""

    output: Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]
    input_gradient: Callable[[Any, Tensor, Tensor, Tensor], Tensor]
    add_weight_gradient: Callable[["WeightGradients", SetAside], None]


@final
class WeightGradients:
    """The weight gradients of a model's linear and convolution layers, computed when asked.

    Between the construction and `restore`, backward through the model sets them aside under the key of the micro-batch
    that `current` names. Not safe: differentiating twice.
    """

    def __init__(self, model: nn.Module) -> None:
        self.current = 0
        """The micro-batch whose backward runs."""
        self._kept: dict[int, list[SetAside]] = {}
        self._buffers: dict[Tensor, Tensor] = {}
        """Memory of gradients, used again in the next step: fresh memory costs page faults."""
        self._layers = [module for module in model.modules() if _is_splittable(module)]
        for layer in self._layers:
            layer.forward = partial(_forward, layer, self)

    def restore(self) -> None:
        """Give the layers their own forward pass back."""
        for layer in self._layers:
            del layer.forward

    def set_aside(self, entry: SetAside) -> None:
        """Keep what a weight gradient needs; backward calls this."""
        self._kept.setdefault(self.current, []).append(entry)

    @torch.no_grad()
    def add(self, microbatch: int) -> None:
        """Add the weight gradients of one micro-batch to the parameters' gradients."""
        for entry in self._kept.pop(microbatch, ()):
            _RULES[type(entry.layer)].add_weight_gradient(self, entry)

    @torch.no_grad()
    def add_all(self) -> None:
        """Add the weight gradients of all micro-batches, each layer's in one computation."""
        by_layer: dict[tuple[Any, Tensor], list[SetAside]] = {}
        for microbatch in sorted(self._kept):
            for entry in self._kept[microbatch]:
                by_layer.setdefault((entry.layer, entry.weight), []).append(entry)
        self._kept.clear()
        for entries in by_layer.values():
            joined = _joined(entries)
            _RULES[type(joined.layer)].add_weight_gradient(self, joined)

    def accumulate(self, param: Tensor, gradient: Tensor) -> None:
        """Add a gradient to a parameter's."""
        if param.grad is None:
            param.grad = gradient.to(param.dtype)
        else:
            param.grad.add_(gradient)

    def accumulate_product(self, param: Tensor, left: Tensor, right: Tensor) -> None:
        """Add the product of two matrices to a parameter's gradient, without a temporary where dtypes agree."""
        if left.dtype != param.dtype:
            self.accumulate(param, torch.mm(left, right))
        elif param.grad is not None:
            param.grad.addmm_(left, right)
        else:
            buffer = self._buffers.get(param)
            if buffer is None or getrefcount(buffer) > _OWN_REFERENCES:
                buffer = self._buffers[param] = torch.empty_like(param)
            torch.mm(left, right, out=buffer)
            param.grad = buffer


def _is_splittable(module: nn.Module) -> bool:
    """Whether the module is a plain layer with a rule: not a subclass, not changed, its weight a trained parameter."""
    if type(module) not in _RULES or "forward" in vars(module):
        return False
    if getattr(module, "padding_mode", "zeros") != "zeros" or isinstance(getattr(module, "padding", ()), str):
        return False
    weight = module._parameters.get("weight")  # pyright: ignore[reportPrivateUsage]
    return weight is not None and weight.requires_grad


def _forward(layer: Any, collector: WeightGradients, inputs: Tensor) -> Tensor:
    device = inputs.device.type
    if torch.is_autocast_enabled(device) and inputs.dtype != torch.float64:
        inputs = inputs.to(torch.get_autocast_dtype(device))
    if not torch.is_grad_enabled():
        bias = None if layer.bias is None else layer.bias.to(inputs.dtype)
        return _RULES[type(layer)].output(layer, inputs, layer.weight.to(inputs.dtype), bias)
    return _SplitBackward.apply(inputs, layer.weight, layer.bias, layer, collector)


class _SplitBackward(torch.autograd.Function):
    """A layer whose backward pass computes the gradient of its input only."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, layer: Any, collector: WeightGradients
    ) -> Tensor:
        ctx.layer, ctx.collector, ctx.weight, ctx.bias = layer, collector, weight, bias
        used = weight.to(inputs.dtype)
        ctx.save_for_backward(inputs, used)
        with torch.autocast(inputs.device.type, enabled=False):
            return _RULES[type(layer)].output(
                layer, inputs, used, None if bias is None else bias.to(inputs.dtype)
            )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        inputs, used = ctx.saved_tensors
        (gradient,) = gradients
        ctx.collector.set_aside(SetAside(ctx.layer, ctx.weight, ctx.bias, inputs, gradient))
        wanted = (
            _RULES[type(ctx.layer)].input_gradient(ctx.layer, inputs, used, gradient)
            if ctx.needs_input_grad[0]
            else None
        )
        return wanted, None, None, None, None


def _joined(entries: Sequence[SetAside]) -> SetAside:
    """The entries of several micro-batches as one of all their samples."""
    first = entries[0]
    if len(entries) == 1:
        return first
    inputs, gradient = (torch.cat(list(parts)) for parts in _columns(entries))
    return first._replace(inputs=inputs, gradient=gradient)


def _columns(entries: Sequence[SetAside]) -> tuple[Iterable[Tensor], Iterable[Tensor]]:
    return (entry.inputs for entry in entries), (entry.gradient for entry in entries)


def _linear_output(layer: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(inputs, weight, bias)


def _linear_input_gradient(layer: Any, inputs: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    return gradient.matmul(weight)


def _add_linear(collector: WeightGradients, entry: SetAside) -> None:
    rows = entry.gradient.reshape(-1, entry.gradient.shape[-1])
    collector.accumulate_product(entry.weight, rows.t(), entry.inputs.reshape(-1, entry.inputs.shape[-1]))
    if entry.bias is not None:
        collector.accumulate(entry.bias, rows.sum(0))


def _convolution_output(layer: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return layer._conv_forward(inputs, weight, bias)


def _convolution_backward(
    layer: Any, inputs: Tensor, weight: Tensor, gradient: Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.convolution_backward(
        gradient,
        inputs,
        weight,
        [layer.out_channels],
        layer.stride,
        layer.padding,
        layer.dilation,
        False,
        [0] * len(layer.stride),
        layer.groups,
        wanted,
    )


def _convolution_input_gradient(layer: Any, inputs: Tensor, weight: Tensor, gradient: Tensor) -> Tensor:
    return _convolution_backward(layer, inputs, weight, gradient, (True, False, False))[0]


def _add_convolution(collector: WeightGradients, entry: SetAside) -> None:
    weight = entry.weight.to(entry.inputs.dtype)
    wanted = (False, True, entry.bias is not None)
    _, for_weight, for_bias = _convolution_backward(entry.layer, entry.inputs, weight, entry.gradient, wanted)
    collector.accumulate(entry.weight, for_weight)
    if entry.bias is not None:
        collector.accumulate(entry.bias, for_bias)


_CONVOLUTION = _Rule(_convolution_output, _convolution_input_gradient, _add_convolution)
_RULES: dict[type, _Rule] = {
    nn.Linear: _Rule(_linear_output, _linear_input_gradient, _add_linear),
    nn.Conv1d: _CONVOLUTION,
    nn.Conv2d: _CONVOLUTION,
    nn.Conv3d: _CONVOLUTION,
}
