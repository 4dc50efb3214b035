"""Where gradients lie in buckets, and how they get there."""

from collections.abc import Iterable, Sequence
from sys import getrefcount

import torch
from torch import Tensor

from shoal.errors import ConfigError


class Slot:
    """The place of one parameter's gradient."""

    __slots__ = ("arrived", "bucket", "index", "name", "param", "view")

    def __init__(self, index: int, name: str, param: Tensor) -> None:
        self.index = index
        self.name = name
        self.param = param
        self.arrived = False
        """Whether its gradient has become final in the pass that exchanges."""
        self.view: Tensor
        self.bucket: Filling

    def leave_to_holder(self) -> None:
        """The program has kept the last gradient (`before = [param.grad for …]`): it gets memory of its own."""
        kept, self.view = self.view, self.view.detach()
        kept.data = kept.clone()


_REFERENCES = 2
"""To a view: its slot's, and that of asking how many there are."""


class Filling:
    """A bucket while it is being filled."""

    __slots__ = ("flat", "gradients", "num_missing", "slots")

    def __init__(self, gradients: Tensor, flat: Tensor, slots: Sequence[Slot]) -> None:
        self.gradients = gradients
        self.flat = flat
        """What is exchanged: the gradients, and in the last bucket the rider behind them."""
        self.slots = slots
        self.num_missing = 0


_DOUBLE = frozenset((torch.float64, torch.complex128))


class Factor:
    """A number to multiply tensors with, as tensors: those cost a third of what a Python number does."""

    def __init__(self, value: float) -> None:
        self.value = value
        self._single, self._double = torch.tensor(value), torch.tensor(value, dtype=torch.float64)

    def multiply(self, tensors: Iterable[Tensor], out: Iterable[Tensor]) -> None:
        """Each tensor times the factor, into `out`."""
        single, double = self._single, self._double
        for tensor, product in zip(tensors, out, strict=True):
            # Half precision takes the factor in float32: its own would round it.
            torch.mul(tensor, double if tensor.dtype in _DOUBLE else single, out=product)


def fill(slots: Iterable[Slot], weight: Factor | None) -> None:
    """Put gradients, times the weight, in their places; zero where there is none."""
    zeros: list[Tensor] = []
    places: list[Tensor] = []
    grads: list[Tensor] = []
    for slot in slots:
        grad = slot.param.grad
        if grad is not slot.view and getrefcount(slot.view) > _REFERENCES:
            slot.leave_to_holder()
        view = slot.view
        if grad is None:
            zeros.append(view)
        elif grad is not view or weight is not None:
            if grad.layout is not torch.strided:
                raise ConfigError(
                    f"parameter '{slot.name}' has a sparse gradient, and buckets hold dense ones",
                    "Build the layer with sparse=False.",
                )
            places.append(view)
            grads.append(grad)
            slot.param.grad = view
    if weight is None:
        if places:
            torch._foreach_copy_(places, grads)  # pyright: ignore[reportPrivateUsage]
    elif weight.value == 0:
        zeros += places  # and not 0 · gradient: the mean over no samples is NaN
    else:
        weight.multiply(grads, places)
    if zeros:
        torch._foreach_zero_(zeros)  # pyright: ignore[reportPrivateUsage]
