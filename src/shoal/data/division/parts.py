"""Parts of a data set: how large they are, and from the owner of each sample to a part for each worker."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.data.division.order import even_shares, shares_by_weight
from shoal.errors import ConfigError

Parts = tuple[Tensor, ...]
"""The indices that each worker owns, by rank."""


def parts_of_owners(owners: Tensor, workers: int, order: Tensor | None = None) -> Parts:
    """The samples of each worker, in this order of all samples; in stored order where none is given.

    >>> parts_of_owners(torch.tensor([1, 0, 1]), workers=2, order=torch.tensor([2, 1, 0]))
    (tensor([1]), tensor([2, 0]))
    """
    order = torch.arange(len(owners)) if order is None else order
    by_owner = order[owners[order].argsort(stable=True)]
    return by_owner.split(owners.bincount(minlength=workers).tolist())


def whole_sizes(num_samples: int, workers: int, sizes: Sequence[float] | None) -> tuple[int, ...]:
    """Sizes as whole numbers that add up: even where none are given; fractions of one are rounded so that they do.

    >>> whole_sizes(10, 3, None), whole_sizes(10, 2, [7, 3]), whole_sizes(10, 3, [0.7, 0.2, 0.1])
    ((4, 3, 3), (7, 3), (7, 2, 1))
    """
    if sizes is None:
        return even_shares(num_samples, workers)
    shown = ", ".join(f"{size:g}" for size in sizes)
    if len(sizes) != workers:
        raise ConfigError(f"{len(sizes)} sizes ({shown}) for {workers} workers: every worker needs one")
    if not all(size >= 0 for size in sizes):
        raise ConfigError(f"sizes of parts are numbers from 0, and these are {shown}")
    if all(isinstance(size, int) for size in sizes):
        if sum(sizes) != num_samples:
            raise ConfigError(
                f"the sizes {shown} add up to {sum(sizes):,}, and the data set has {num_samples:,} samples",
                "Every sample belongs to one worker; fractions that add up to 1 fit any data set.",
            )
        return tuple(int(size) for size in sizes)
    if not math.isclose(sum(sizes), 1.0, abs_tol=1e-6):
        raise ConfigError(
            f"the sizes {shown} are fractions that add up to {sum(sizes):g}, and not to 1",
            "Every sample belongs to one worker; shares_by_weight() makes sizes of any numbers.",
        )
    return shares_by_weight(num_samples, sizes)
