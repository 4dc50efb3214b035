"""Which samples a step takes, and which of them a worker: pure functions, so that resuming needs no state.

A step takes the next `batch_size` indices of the epoch's order; `shares` says how many of them each worker
takes. Changing `shares`, or the number of workers, changes who computes a sample and never which samples a
step has.

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
    """The samples that a worker owns, shuffled: a pure function of (seed, epoch, rank)."""
    return part[torch.randperm(len(part), generator=generator_for("part", seed, epoch, rank))]


def sample_draws(num_samples: int, count: int, seed: int, epoch: int, rank: int) -> Tensor:
    """A worker's draws from the whole data set, with replacement: a pure function of (seed, epoch, rank)."""
    return torch.randint(num_samples, (count,), generator=generator_for("sampling", seed, epoch, rank))


def even_shares(batch_size: int, workers: int) -> tuple[int, ...]:
    """The batch divided as evenly as whole samples allow; the first workers take the remainder.

    >>> even_shares(64, 3), even_shares(2, 3)
    ((22, 21, 21), (1, 1, 0))
    """
    each, left = divmod(batch_size, workers)
    return tuple(each + (rank < left) for rank in range(workers))


def shares_by_weight(count: int, weights: Sequence[float]) -> tuple[int, ...]:
    """So many samples divided in proportion to the weights, by largest remainder.

    Everyone gets the whole part of count · w / Σw; those whose lost fraction is largest get one more, of equals the
    lower rank. Computed without rounding, so that all workers agree on every machine. Equal weights are even shares.

    >>> shares_by_weight(64, (2.0, 1.0, 1.0)), shares_by_weight(2, (1, 1, 1)), shares_by_weight(5, (0.5, 0, 0.5))
    ((32, 16, 16), (1, 1, 0), (3, 0, 2))
    """
    if (
        not weights
        or not all(math.isfinite(weight) and weight >= 0 for weight in weights)
        or not any(weights)
    ):
        raise ConfigError(
            f"weights of workers are numbers from 0, and not all of them 0: {', '.join(map(str, weights)) or 'none'}"
        )
    # Every float is a whole number over a power of two: over a common denominator all of this is whole numbers.
    ratios = [weight.as_integer_ratio() for weight in weights]
    common = math.lcm(*(denominator for _, denominator in ratios))
    exact = [numerator * (common // denominator) for numerator, denominator in ratios]
    total = sum(exact)
    quotas = [divmod(count * weight, total) for weight in exact]
    left = count - sum(whole for whole, _ in quotas)
    by_lost_fraction = sorted(range(len(quotas)), key=lambda rank: -quotas[rank][1])
    favoured = set(by_lost_fraction[:left])
    return tuple(whole + (rank in favoured) for rank, (whole, _) in enumerate(quotas))


def step_indices(order: Tensor, consumed: int, batch_size: int) -> Tensor:
    """The next `batch_size` indices after the first `consumed`; an epoch's last step takes what is left."""
    return order[consumed : consumed + batch_size]


def worker_indices(order: Tensor, consumed: int, shares: Sequence[int], rank: int) -> Tensor:
    """The part of a step that one worker takes: `shares[rank]` indices, after those of the lower ranks.

    The shares add up to the samples of the step: a short last step is shared by `shares_by_weight` of what is left,
    so that it keeps all workers busy too.

    >>> [worker_indices(torch.arange(10), 4, (3, 0, 1), rank).tolist() for rank in range(3)]
    [[4, 5, 6], [], [7]]
    """
    start = consumed + sum(shares[:rank])
    return order[start : start + shares[rank]]
