"""The slots of gradients in flat memory, and how gradients get there: copied, or computed in their slots.

Autograd gives every gradient memory of its own, and the copy to the slot in the bucket is one more pass over memory: 5
of 45 ms per step with 5.8 M parameters in three linear layers. A matrix product can write to memory that is given. So,
while a reducer collects gradients, the forward pass of `nn.Linear` is replaced by one whose backward pass writes to
the slot (`LinearGradients`).

Bits are those of autograd: the same products of the same matrices. Whatever this does not cover (subclasses, autocast,
a second gradient of the same weights, gradients of gradients, a weight that a hook has replaced) goes autograd's way,
and the gradient is copied.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from sys import getrefcount
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from shoal.errors import ConfigError, WrapperError
from shoal.strategies.buckets.bucket import Bucket


class Slot:
    """The slot of one parameter's gradient."""

    __slots__ = ("arrived", "filling", "index", "is_lent", "name", "param", "view")

    def __init__(self, index: int, name: str, param: Tensor) -> None:
        self.index = index
        self.name = name
        self.param = param
        self.arrived = False
        """Whether its gradient has become final in the pass that is exchanged."""
        self.is_lent = False
        """Whether a gradient of the pass that is exchanged has been computed in the slot."""
        self.view: Tensor
        self.filling: Filling

    def lend(self) -> Tensor | None:
        """Memory to compute the gradient in: the first of a pass, if there is none yet to which it is added.

        None if the program has hooks on the gradient, which may keep it.
        """
        if self.is_lent or self.param.grad is not None or self.param._backward_hooks:  # pyright: ignore[reportPrivateUsage]
            return None
        if getrefcount(self.view) > _REFERENCES:
            self.release_view()
        self.is_lent = True
        # Autograd keeps a tensor that only it has a reference to, and copies any other.
        return self.view.detach()

    def release_view(self) -> None:
        """Give the old view memory of its own: the program has kept the last gradient (`[param.grad for …]`)."""
        kept, self.view = self.view, self.view.detach()
        kept.data = kept.clone()


_REFERENCES = 2
"""References to a view that only its slot holds: the slot's, and `getrefcount`'s argument."""


class Filling:
    """A bucket while it is being filled."""

    __slots__ = ("bucket", "num_missing", "slots")

    def __init__(self, bucket: Bucket, slots: Sequence[Slot]) -> None:
        self.bucket = bucket
        self.slots = slots
        self.num_missing = 0
        for slot, view in zip(slots, bucket.views, strict=True):
            slot.view, slot.filling = view, self


_DOUBLE = frozenset((torch.float64, torch.complex128))


class Factor:
    """A number to multiply tensors with, held as tensors: three times as fast as a Python number."""

    def __init__(self, value: float) -> None:
        self.value = value
        self._single, self._double = torch.tensor(value), torch.tensor(value, dtype=torch.float64)

    def multiply(self, tensors: Iterable[Tensor], out: Iterable[Tensor]) -> None:
        """Each tensor times the factor, into `out`."""
        single, double = self._single, self._double
        for tensor, product in zip(tensors, out, strict=True):
            # For half precision the factor stays float32: rounding it would cost digits.
            torch.mul(tensor, double if tensor.dtype in _DOUBLE else single, out=product)


factor_of = lru_cache(maxsize=64)(Factor)
"""The factor of a value: most weights are those of the last step."""

ABSENT = -0.0
"""What stands for an absent gradient in a sum. The sum with x is x, and with 0.0 it is not if x is −0.0."""


def fill(slots: Iterable[Slot], weight: Factor | None) -> list[Slot]:
    """Put gradients, times the weight, in their slots, and −0 in slots without one: these are returned."""
    absent: list[Slot] = []
    zeros: list[Tensor] = []
    views: list[Tensor] = []
    grads: list[Tensor] = []
    for slot in slots:
        grad = slot.param.grad
        if grad is not slot.view and getrefcount(slot.view) > _REFERENCES:
            slot.release_view()
        view = slot.view
        if grad is None:
            absent.append(slot)
            zeros.append(view)
        elif grad is not view or weight is not None:
            if grad.layout is not torch.strided:
                raise sparse_gradient(slot.name)
            if grad.requires_grad and torch.is_grad_enabled():
                raise WrapperError(
                    f"backward(create_graph=True) made a graph of the gradient of '{slot.name}', but the exchange of "
                    "gradients cannot be differentiated",
                    "Take second derivatives with torch.autograd.grad(…, create_graph=True), or under no_sync().",
                )
            slot.param.grad = view
            if weight is None and slot.is_lent and grad.data_ptr() == view.data_ptr():
                continue  # computed there
            views.append(view)
            grads.append(grad)
    _write(views, grads, zeros, weight)
    return absent


def copy_gradients(
    params: Mapping[str, Tensor], views: Iterable[Tensor], weight: Factor | None = None
) -> list[str]:
    """Copy gradients, times the weight, to their views of flat memory, −0 where there is none.

    Returns the names of parameters without a gradient.
    """
    absent: list[str] = []
    zeros: list[Tensor] = []
    filled: list[Tensor] = []
    grads: list[Tensor] = []
    for (name, param), view in zip(params.items(), views, strict=True):
        if param.grad is None:
            absent.append(name)
            zeros.append(view)
        else:
            if param.grad.layout is not torch.strided:
                raise sparse_gradient(name)
            filled.append(view)
            grads.append(param.grad)
    _write(filled, grads, zeros, weight)
    return absent


def _write(views: list[Tensor], grads: list[Tensor], zeros: list[Tensor], weight: Factor | None) -> None:
    """Write gradients, times the weight, to these views, and −0 to `zeros`."""
    if weight is None:
        if views:
            torch._foreach_copy_(views, grads)  # pyright: ignore[reportPrivateUsage]
    elif weight.value:
        weight.multiply(grads, views)
    else:
        zeros = zeros + views  # instead of 0 · gradient: the mean over no samples is NaN
    for view in zeros:
        view.fill_(ABSENT)


def second_gradient(name: str, fix: str) -> ConfigError:
    """The error for a parameter whose gradient became final twice in one pass: the first was used by then.

    Reentrant checkpointing, a backward pass inside another, does this to a block that is used twice.
    """
    return ConfigError(
        f"parameter '{name}' got a second gradient in the same pass, after the first was used", fix
    )


def sparse_gradient(name: str) -> ConfigError:
    """The error for a parameter whose gradient has no place in flat memory."""
    return ConfigError(
        f"parameter '{name}' has a sparse gradient, but the workers exchange dense gradients",
        "Build the layer with sparse=False.",
    )


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
            torch.mm(rows.t(), columns, out=_memory_for(ctx)) if of_weight else None,
            rows.sum(0) if of_bias else None,
            None,
        )


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
