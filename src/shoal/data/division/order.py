"""The samples of a step and of each worker in it: pure functions, so that resuming needs no state.

A step takes the next `batch_size` indices of the epoch's order; `shares` are the numbers of samples of the workers.
Changing `shares` or the number of workers changes which worker computes a sample, and never which samples a step has.

>>> order = epoch_order(num_samples=10, seed=0, epoch=0)
>>> shares = even_shares(batch_size=4, workers=3)
>>> parts = [worker_indices(order, 4, shares, rank) for rank in range(3)]
>>> torch.equal(torch.cat(parts), step_indices(order, 4, batch_size=4))
True
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.data.seeds import generator_for
from shoal.errors import ConfigError


def epoch_order(num_samples: int, seed: int, epoch: int) -> Tensor:
    """A permutation of all samples: a pure function of (seed, epoch)."""
    return torch.randperm(num_samples, generator=generator_for("order", seed, epoch))


def part_order(part: Tensor, seed: int, epoch: int, rank: int) -> Tensor:
    """A worker's part, shuffled: a pure function of (seed, epoch, rank)."""
    return part[torch.randperm(len(part), generator=generator_for("part", seed, epoch, rank))]


def sample_draws(num_samples: int, count: int, seed: int, epoch: int, rank: int) -> Tensor:
    """A worker's draws from the whole data set, with replacement: a pure function of (seed, epoch, rank)."""
    return torch.randint(num_samples, (count,), generator=generator_for("sampling", seed, epoch, rank))


def even_shares(batch_size: int, workers: int) -> tuple[int, ...]:
    """The batch divided evenly; the first workers take one sample of the remainder each.

    >>> even_shares(64, 3), even_shares(2, 3)
    ((22, 21, 21), (1, 1, 0))
    """
    each, left = divmod(batch_size, workers)
    return tuple(each + (rank < left) for rank in range(workers))


def shares_by_weight(count: int, weights: Sequence[float]) -> tuple[int, ...]:
    """`count` samples divided in proportion to the weights, by largest remainder.

    Each worker gets the integer part of count · w / Σw; those with the largest remainders get one more, the lower rank
    first if remainders are equal. Computed without rounding, so that all machines agree; equal weights give equal
    shares.

    >>> shares_by_weight(64, (2.0, 1.0, 1.0)), shares_by_weight(2, (1, 1, 1)), shares_by_weight(5, (0.5, 0, 0.5))
    ((32, 16, 16), (1, 1, 0), (3, 0, 2))
    """
    if (
        not weights
        or not all(math.isfinite(weight) and weight >= 0 for weight in weights)
        or not any(weights)
    ):
        raise ConfigError(
            f"weights must be numbers ≥ 0, not all of them 0; got {', '.join(map(str, weights)) or 'none'}"
        )
    # Every float is an integer over a power of two: with a common denominator the arithmetic is exact.
    ratios = [weight.as_integer_ratio() for weight in weights]
    common = math.lcm(*(denominator for _, denominator in ratios))
    exact = [numerator * (common // denominator) for numerator, denominator in ratios]
    total = sum(exact)
    quotas = [divmod(count * weight, total) for weight in exact]
    left = count - sum(whole for whole, _ in quotas)
    by_remainder = sorted(range(len(quotas)), key=lambda rank: -quotas[rank][1])
    one_more = set(by_remainder[:left])
    return tuple(whole + (rank in one_more) for rank, (whole, _) in enumerate(quotas))


def step_indices(order: Tensor, consumed: int, batch_size: int) -> Tensor:
    """The `batch_size` indices after the first `consumed`; the last step of an epoch may be shorter."""
    return order[consumed : consumed + batch_size]


def worker_indices(order: Tensor, consumed: int, shares: Sequence[int], rank: int) -> Tensor:
    """One worker's indices of a step: `shares[rank]` of them, after those of the lower ranks.

    The shares add up to the samples of the step; a short last step is divided by `shares_by_weight` too, so that all
    workers take part in it.

    >>> [worker_indices(torch.arange(10), 4, (3, 0, 1), rank).tolist() for rank in range(3)]
    [[4, 5, 6], [], [7]]
    """
    start = consumed + sum(shares[:rank])
    return order[start : start + shares[rank]]


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
