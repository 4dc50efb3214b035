"""Clipping where each worker's gradient is an update of its own."""

from collections.abc import Iterable

from torch import Tensor


def clip_alone(gradients: Iterable[Tensor], square: float, part: float, largest: float | None) -> None:
    """Scale the gradient of a share, in place, as if the mean gradient of its samples had at most the norm `largest`.

    The gradient is `part` times that mean, where `part` is the share's part of the samples of a step; `square` is its
    squared norm.
    """
    norm = square**0.5
    if largest is not None and norm > largest * part:
        for gradient in gradients:
            gradient.mul_(largest * part / norm)
