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

from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.data.seeds import generator_for


def epoch_order(num_samples: int, seed: int, epoch: int) -> Tensor:
    """A permutation of all samples: a pure function of (seed, epoch)."""
    return torch.randperm(num_samples, generator=generator_for("order", seed, epoch))


def even_shares(batch_size: int, workers: int) -> tuple[int, ...]:
    """The batch divided as evenly as whole samples allow; the first workers take the remainder.

    >>> even_shares(64, 3), even_shares(2, 3)
    ((22, 21, 21), (1, 1, 0))
    """
    each, left = divmod(batch_size, workers)
    return tuple(each + (rank < left) for rank in range(workers))


def step_indices(order: Tensor, consumed: int, batch_size: int) -> Tensor:
    """The next `batch_size` indices after the first `consumed`; an epoch's last step takes what is left."""
    return order[consumed : consumed + batch_size]


def worker_indices(order: Tensor, consumed: int, shares: Sequence[int], rank: int) -> Tensor:
    """The part of a step that one worker takes: `shares[rank]` indices, after those of the lower ranks.

    A short last step is divided in the same proportion, so that it keeps all workers busy too:

    >>> order = torch.arange(10)
    >>> [len(worker_indices(order, 8, (4, 2, 2), rank)) for rank in range(3)]
    [1, 0, 1]
    """
    batch_size = sum(shares)
    step = step_indices(order, consumed, batch_size)
    before = sum(shares[:rank])
    start, end = (cut * len(step) // batch_size for cut in (before, before + shares[rank]))
    return step[start:end]
