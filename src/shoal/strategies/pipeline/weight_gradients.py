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

from functools import partial
from sys import getrefcount
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_OWN_REFERENCES = 3
"""References to a buffer that the program does not use: the table's, a variable's, and `getrefcount`'s argument."""


class _LayerGradient(NamedTuple):
    """What the weight gradient of one layer and one micro-batch needs."""

    layer: Any
    weight: Tensor
    bias: Tensor | None
    inputs: Tensor
    of_output: Tensor


@final
class WeightGradients:
    """The weight gradients of a model's linear and convolution layers, computed when asked.

    From the construction on, backward through the model sets them aside under the key of the micro-batch that `current`
    names. Not safe: differentiating twice.
    """

    def __init__(self, model: nn.Module) -> None:
        self.current = 0
        """The micro-batch whose backward runs."""
        self.set_aside: dict[int, list[_LayerGradient]] = {}
        """By micro-batch; backward puts it there."""
        self._buffers: dict[Tensor, Tensor] = {}
        """Memory of gradients, used again in the next step: fresh memory costs page faults."""
        for layer in model.modules():
            if _is_splittable(layer):
                layer.forward = partial(_forward, layer, self)

    @torch.no_grad()
    def add(self, microbatch: int) -> None:
        """Add the weight gradients of one micro-batch to the parameters' gradients."""
        for entry in self.set_aside.pop(microbatch, ()):
            self._add(entry)

    @torch.no_grad()
    def add_all(self) -> None:
        """Add the weight gradients of all micro-batches, each layer's in one computation."""
        by_layer: dict[tuple[Any, Tensor], list[_LayerGradient]] = {}
        for microbatch in sorted(self.set_aside):
            for entry in self.set_aside[microbatch]:
                by_layer.setdefault((entry.layer, entry.weight), []).append(entry)
        self.set_aside.clear()
        for entries in by_layer.values():
            first, *others = entries
            if others:
                inputs = torch.cat([entry.inputs for entry in entries])
                of_output = torch.cat([entry.of_output for entry in entries])
                first = first._replace(inputs=inputs, of_output=of_output)
            self._add(first)

    def _add(self, entry: _LayerGradient) -> None:
        """Add a weight gradient; of a linear layer without a temporary, where dtypes agree."""
        layer, weight, bias, inputs, gradient = entry
        if isinstance(layer, nn.Linear):
            rows, columns = gradient.reshape(-1, gradient.shape[-1]), inputs.reshape(-1, inputs.shape[-1])
            if rows.dtype != weight.dtype:
                _accumulate(weight, torch.mm(rows.t(), columns))
            elif weight.grad is not None:
                weight.grad.addmm_(rows.t(), columns)
            else:
                buffer = self._buffers.get(weight)
                if buffer is None or getrefcount(buffer) > _OWN_REFERENCES:
                    buffer = self._buffers[weight] = torch.empty_like(weight)
                weight.grad = torch.mm(rows.t(), columns, out=buffer)
            for_bias = None if bias is None else rows.sum(0)
        else:
            wanted = (False, True, bias is not None)
            used = weight.to(inputs.dtype)
            _, for_weight, for_bias = _convolution_backward(layer, inputs, used, gradient, wanted)
            _accumulate(weight, for_weight)
        if bias is not None and for_bias is not None:
            _accumulate(bias, for_bias)


def _accumulate(param: Tensor, gradient: Tensor) -> None:
    if param.grad is None:
        param.grad = gradient.to(param.dtype)
    else:
        param.grad.add_(gradient)


_SPLITTABLE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _is_splittable(module: nn.Module) -> bool:
    """Whether the module is a plain layer of these kinds: not a subclass, not changed, its weight trained."""
    if type(module) not in _SPLITTABLE or "forward" in vars(module):
        return False
    if getattr(module, "padding_mode", "zeros") != "zeros" or isinstance(getattr(module, "padding", ()), str):
        return False
    weight = module._parameters.get("weight")  # pyright: ignore[reportPrivateUsage]
    return weight is not None and weight.requires_grad


def _forward(layer: Any, collector: WeightGradients, inputs: Tensor) -> Tensor:
    device = inputs.device.type
    if torch.is_autocast_enabled(device) and inputs.dtype != torch.float64:
        inputs = inputs.to(torch.get_autocast_dtype(device))
    if torch.is_grad_enabled():
        return _SplitBackward.apply(inputs, layer.weight, layer.bias, layer, collector)
    return _output(layer, inputs, layer.weight.to(inputs.dtype), layer.bias)


def _output(layer: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    bias = None if bias is None else bias.to(inputs.dtype)
    if isinstance(layer, nn.Linear):
        return F.linear(inputs, weight, bias)
    return layer._conv_forward(inputs, weight, bias)


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
            return _output(layer, inputs, used, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        inputs, used = ctx.saved_tensors
        (gradient,) = gradients
        layer, collector = ctx.layer, ctx.collector
        entry = _LayerGradient(layer, ctx.weight, ctx.bias, inputs, gradient)
        collector.set_aside.setdefault(collector.current, []).append(entry)
        wanted = None
        if ctx.needs_input_grad[0] and isinstance(layer, nn.Linear):
            wanted = gradient.matmul(used)
        elif ctx.needs_input_grad[0]:
            wanted = _convolution_backward(layer, inputs, used, gradient, (True, False, False))[0]
        return wanted, None, None, None, None


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
