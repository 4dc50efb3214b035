"""How far rounding alone may separate two computations of the same sum."""

import torch
from torch import Tensor

FACTOR = 8
"""Roundings of a random walk of so many standard deviations."""
UPDATE = 16
"""Roundings of one element in one update from the same gradient."""


def of_sums(dtype: str, terms: int, depth: int) -> float:
    """For elements that are sums of `terms` products in each of `depth` layers: part of the largest element.

    Roundings of a sum are a random walk of steps of eps, in whatever order its terms are added.

    >>> 1e-6 < of_sums("float32", 64, 4) < 1e-4
    True
    """
    return FACTOR * torch.finfo(getattr(torch, dtype)).eps * (terms * depth) ** 0.5


def of_update(dtype: torch.dtype) -> float:
    """For an update from the same gradient and state."""
    return UPDATE * torch.finfo(dtype).eps


def apart(found: Tensor, expected: Tensor, scale: float = 0.0) -> float:
    """max|a − b| as a part of max|b|, or of `scale` if that is larger; infinite for shapes and numbers apart."""
    if found.shape != expected.shape:
        return float("inf")
    if not found.numel():
        return 0.0
    wide, expected = found.double(), expected.double()
    if not (torch.isfinite(wide).all() and torch.isfinite(expected).all()):
        return 0.0 if torch.equal(wide.nan_to_num(7.0), expected.nan_to_num(7.0)) else float("inf")
    largest = max(float(expected.abs().max()), scale)
    distance = float((wide - expected).abs().max())
    return distance / largest if largest else (float("inf") if distance else 0.0)
