"""Compute gradients of large linear layers in their slots, instead of copying them there.

Autograd gives every gradient memory of its own, and the copy to the slot in the bucket is one more pass over memory: 5
of 45 ms per step with 5.8 M parameters in three linear layers. A matrix product can write to memory that is given. So,
while a reducer collects gradients, the forward pass of `nn.Linear` is replaced by one whose backward pass writes to
the slot.

Bits are those of autograd: the same products of the same matrices. Whatever this does not cover (subclasses, autocast,
a second gradient of the same weights, gradients of gradients, a weight that a hook has replaced) goes autograd's way,
and the gradient is copied.
"""

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from shoal.strategies.buckets.gradient_slots import Slot


@final
class LinearGradients:
    """Linear layers of a model whose weights' gradients are computed in these slots, between `begin` and `end`.

    Outside of that the layers are as they were.
    """

    def __init__(self, model: nn.Module, slots: Iterable[Slot]) -> None:
        slot_of = {id(slot.param): slot for slot in slots if slot.param.is_cpu}
        layers = [layer for layer in covered(model) if id(layer.weight) in slot_of]
        self._slots = [slot_of[id(layer.weight)] for layer in layers]
        self._forwards = [
            (vars(layer), _Forward(layer, slot)) for layer, slot in zip(layers, self._slots, strict=True)
        ]
        """The attributes of each layer, and the forward pass that replaces its own."""

    def begin(self) -> None:
        """Replace the layers' forward pass, unless the program has done so itself."""
        for attributes, forward in self._forwards:
            attributes.setdefault("forward", forward)

    def end(self) -> None:
        """Give the layers their own forward pass again. The slots are free for the next pass."""
        for attributes, forward in self._forwards:
            if attributes.get("forward") is forward:
                del attributes["forward"]
        for slot in self._slots:
            slot.is_lent = False


def covered(model: nn.Module) -> list[nn.Linear]:
    """The plain linear layers of a model: their weights' gradients can be computed in slots."""
    return [
        layer
        for layer in model.modules()
        # A subclass, or a layer with a `forward` of its own, may compute something else.
        if type(layer) is nn.Linear and "forward" not in vars(layer)
        if layer.weight.is_contiguous()
    ]


@final
class _Forward:
    """The forward pass of a layer whose weight has a slot. A copy of the layer gets its own class's again."""

    def __init__(self, layer: nn.Linear, slot: Slot) -> None:
        self._layer, self._slot = layer, slot

    def __call__(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name for it)
        weight, bias = self._layer.weight, self._layer.bias
        if self._covers(input, weight):
            return _Linear.apply(input, weight, bias, self._slot)  # pyright: ignore[reportReturnType, reportUnknownVariableType]
        return F.linear(input, weight, bias)

    def _covers(self, inputs: Tensor, weight: Tensor) -> bool:
        return (
            torch.is_grad_enabled()
            and weight is self._slot.param
            and type(inputs) is Tensor
            and inputs.dim() >= 2
            and inputs.is_contiguous()
            and inputs.dtype == weight.dtype
            and not torch.is_autocast_enabled("cpu")
            and not torch.compiler.is_compiling()
            # `torch.func` and forward-mode differentiation need to see the operations themselves.
            and not torch._C._are_functorch_transforms_active()  # pyright: ignore[reportPrivateUsage]
            and forward_ad._current_level < 0  # pyright: ignore[reportPrivateUsage]
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._layer, "forward")


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
