"""`--precision fp16`: the factor on the loss that keeps small gradients above zero in float16."""

from collections.abc import Iterable, Mapping
from typing import final

import torch
from torch import Tensor

from shoal.strategies.pieces.piece import Piece

FIRST = 2.0**16
"""The factor of the first step."""
LEAST = 2.0**-24
"""The smallest factor: of losses in the millions, the gradients overflow at 1, too."""
GROWS_AFTER = 2000
"""Steps without an overflow after which the factor doubles."""


@final
class LossScale:
    """One factor, the same on all workers.

    In float16 numbers below 6e-8 are 0. So backward starts from the gradient of the loss times a factor, and every
    parameter's gradient, in float32, is divided by it before anything else sees it: buckets, norms and codecs hold
    true gradients. Factors are powers of two, so this rounds nothing. Where a gradient overflows on any worker, all
    workers leave the step out and halve the factor; after GROWS_AFTER steps without an overflow they double it. They
    read this from the guard's table, and exchange nothing more.

    A layer sums its weight's gradient over a part's samples in float16. Smaller parts, such as those of more workers,
    overflow less: another division of a batch may leave out other steps, where one machine's is at the limit.

    Reference: Micikevicius et al., Mixed Precision Training, 2018; factors as in `torch.amp.GradScaler`.
    """

    def __init__(self) -> None:
        self.factor = FIRST
        self.left_out = 0
        """Steps that were left out."""
        self._good_steps = 0

    def divide_now(self, gradients: Iterable[Tensor | None]) -> None:
        """Divide these gradients by the factor."""
        for gradient in gradients:
            if gradient is not None:
                gradient /= self.factor

    def divide(self, params: Iterable[Tensor]) -> None:
        """Divide the gradients of these parameters by the factor, from now on and as backward produces them."""
        for param in params:
            param.register_hook(self._divided)

    def _divided(self, gradient: Tensor) -> Tensor:
        # Not in place: the tensor may be the gradient of several parameters.
        return gradient * (1 / self.factor)

    def overflowed(self) -> bool:
        """Halve the factor after an overflow; False if it is LEAST already, where no factor helps."""
        if self.factor <= LEAST:
            return False
        self.factor /= 2
        self.left_out += 1
        self._good_steps = 0
        return True

    def was_finite(self) -> None:
        """Count a step without an overflow."""
        self._good_steps += 1
        if self._good_steps == GROWS_AFTER:
            self.factor *= 2
            self._good_steps = 0

    def pieces(self, replica: int) -> list[Piece]:
        """The state, which all workers have alike."""
        state = torch.tensor([self.factor, self.left_out, self._good_steps], dtype=torch.float64)
        return [Piece.whole("loss_scale", state, replica)]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from a saved state."""
        if "loss_scale" in saved:
            self.factor, left_out, good_steps = saved["loss_scale"].tolist()
            self.left_out, self._good_steps = int(left_out), int(good_steps)
