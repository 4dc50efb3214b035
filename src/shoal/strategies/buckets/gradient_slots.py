"""The slots of gradients in buckets, and how gradients are copied there."""

from collections.abc import Iterable, Sequence
from sys import getrefcount

import torch
from torch import Tensor

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
    if weight is None:
        if views:
            torch._foreach_copy_(views, grads)  # pyright: ignore[reportPrivateUsage]
    elif weight.value == 0:
        zeros += views  # instead of 0 · gradient: the mean over no samples is NaN
    else:
        weight.multiply(grads, views)
    for view in zeros:
        view.fill_(ABSENT)
    return absent


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
        f"parameter '{name}' has a sparse gradient, but buckets hold dense gradients",
        "Build the layer with sparse=False.",
    )
