"""`zero_grad()` of a user's model or optimizer, where gradients are elsewhere than in its parameters."""

from collections.abc import Callable

import torch
from torch import nn


def redirect_zero_grad(owner: nn.Module | torch.optim.Optimizer, forget: Callable[[], None]) -> None:
    """Have `owner.zero_grad()` call `forget`.

    Torch's own would set `grad` of an optimizer's slices to None. It is a view of sums that are made elsewhere, so the
    optimizer would skip these slices from then on. And torch's would find nothing to drop in a model whose gradients
    have been summed to their owners.
    """

    def zero_grad(set_to_none: bool = True) -> None:
        del set_to_none  # the next gradients replace dropped ones in any case
        forget()

    owner.zero_grad = zero_grad
