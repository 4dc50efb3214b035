"""Compute gradients of large linear layers in their slots, instead of copying them there.

Autograd gives every gradient memory of its own, and the copy to the slot in the bucket is one more pass over memory: 5
of 45 ms per step with 5.8 M parameters in three linear layers. A matrix product can write to memory that is given. So,
while a reducer collects gradients, the forward pass of `nn.Linear` is replaced by one whose backward pass writes to
the slot.

Bits are those of autograd: the same products of the same matrices. Whatever this does not cover (subclasses, autocast,
a second gradient of the same weights, gradients of gradients, a weight that a hook has replaced) goes autograd's way,
and the gradient is copied.
"""

from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.parallel.buckets.gradient_slots import Slot


@final
class LinearGradients:
    """Linear layers of a model whose weights' gradients are computed in these slots, between `begin` and `end`.

    Outside of that the layers are as they were: they can be copied, saved and compiled.
    """

    def __init__(self, model: nn.Module, slots: Iterable[Slot]) -> None:
        slot_of = {id(slot.param): slot for slot in slots}
        self._forwards: list[tuple[dict[str, Any], Callable[[Tensor], Tensor]]] = []
        """The attributes of each layer, and the forward pass that replaces its own."""
        for layer in covered(model):
            if (slot := slot_of.get(id(layer.weight))) is not None and layer.weight.is_cpu:
                self._forwards.append((vars(layer), _forward_of(layer, slot)))

    def begin(self) -> None:
        """Replace the layers' forward pass."""
        for attributes, forward in self._forwards:
            attributes["forward"] = forward

    def end(self) -> None:
        """Give the layers their own forward pass again."""
        for attributes, _ in self._forwards:
            attributes.pop("forward", None)


def covered(model: nn.Module) -> list[nn.Linear]:
    """The layers whose weights' gradients can be computed in slots, if they are large enough to be worth it."""
    return [
        layer
        for layer in model.modules()
        # A subclass, or a layer with a `forward` of its own, may compute something else.
        if type(layer) is nn.Linear and "forward" not in vars(layer)
        if layer.weight.is_contiguous()
    ]


def _forward_of(layer: nn.Linear, slot: Slot) -> Callable[[Tensor], Tensor]:
    def forward(input: Tensor) -> Tensor:  # noqa: A002 (torch's name for it)
        weight, bias = layer.weight, layer.bias
        is_covered = (
            torch.is_grad_enabled()
            and weight is slot.param
            and type(input) is Tensor
            and input.dim() >= 2
            and input.is_contiguous()
            and input.dtype == weight.dtype
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
        )
        if not is_covered:
            return F.linear(input, weight, bias)
        return _Linear.apply(input, weight, bias, slot)  # pyright: ignore[reportReturnType, reportUnknownVariableType]

    return forward


class _Linear(torch.autograd.Function):
    """`F.linear`, with a backward pass that writes the weight's gradient to a slot."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, slot: Slot) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.slot = slot
        return F.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        inputs, weight = ctx.saved_tensors
        of_inputs, of_weight, of_bias, _ = ctx.needs_input_grad
        rows = gradient.reshape(-1, gradient.shape[-1])
        columns = inputs.reshape(-1, inputs.shape[-1])
        return (
            rows.mm(weight).view(inputs.shape) if of_inputs else None,
            _product(rows.t(), columns, _memory_for(ctx)) if of_weight else None,
            rows.sum(0) if of_bias else None,
            None,
        )


def _product(left: Tensor, right: Tensor, memory: Tensor | None) -> Tensor:
    return left.mm(right) if memory is None else torch.mm(left, right, out=memory)


def _memory_for(ctx: Any) -> Tensor | None:
    """The slot, if this gradient becomes `weight.grad` and nothing else, and the slot is free."""
    # With gradients of gradients, the product is part of the graph and needs memory of its own.
    if torch.is_grad_enabled():
        return None
    accumulates, _ = ctx.next_functions[1]
    try:
        is_accumulated = torch._C._will_engine_execute_node(accumulates)  # pyright: ignore[reportPrivateUsage]
    except RuntimeError:
        return None  # `torch.autograd.grad`: the program receives the gradient, and may keep it
    return ctx.slot.lend() if is_accumulated else None
