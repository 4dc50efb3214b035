"""Parts of a data set: their sizes, and the conversion from owners to parts."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.data.division.order import even_shares, shares_by_weight
from shoal.errors import ConfigError

Parts = tuple[Tensor, ...]
"""The indices of each worker's samples, by rank."""


def parts_of_owners(owners: Tensor, workers: int, order: Tensor | None = None) -> Parts:
    """The samples of each worker, in the given order of all samples (default: stored order).

    >>> parts_of_owners(torch.tensor([1, 0, 1]), workers=2, order=torch.tensor([2, 1, 0]))
    (tensor([1]), tensor([2, 0]))
    """
    order = torch.arange(len(owners)) if order is None else order
    by_owner = order[owners[order].argsort(stable=True)]
    return by_owner.split(owners.bincount(minlength=workers).tolist())


def whole_sizes(num_samples: int, workers: int, sizes: Sequence[float] | None) -> tuple[int, ...]:
    """Integer sizes that add up to `num_samples`: equal by default; fractions of 1 are rounded by largest remainder.

    >>> whole_sizes(10, 3, None), whole_sizes(10, 2, [7, 3]), whole_sizes(10, 3, [0.7, 0.2, 0.1])
    ((4, 3, 3), (7, 3), (7, 2, 1))
    """
    if sizes is None:
        return even_shares(num_samples, workers)
    shown = ", ".join(f"{size:g}" for size in sizes)
    if len(sizes) != workers:
        raise ConfigError(f"{len(sizes)} sizes ({shown}) for {workers} workers: one per worker is required")
    if not all(size >= 0 for size in sizes):
        raise ConfigError(f"sizes must be ≥ 0; got {shown}")
    if all(isinstance(size, int) for size in sizes):
        if sum(sizes) != num_samples:
            raise ConfigError(
                f"the sizes {shown} add up to {sum(sizes):,}, but the data set has {num_samples:,} samples",
                "Every sample belongs to one worker. Fractions that add up to 1 fit any data set.",
            )
        return tuple(int(size) for size in sizes)
    if not math.isclose(sum(sizes), 1.0, abs_tol=1e-6):
        raise ConfigError(
            f"the sizes {shown} are fractions that add up to {sum(sizes):g}, expected 1",
            "Every sample belongs to one worker. shares_by_weight() turns any weights into sizes.",
        )
    return shares_by_weight(num_samples, sizes)
