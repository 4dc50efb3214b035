"""The division of each step's samples among workers, as the training loop uses it.

An epoch has as many samples as the data set, in an order that all workers know. A step takes the next `count` samples,
and a division says which worker takes which of them:

::

    Global     the order is random, and each step is divided among all workers; the division never changes the samples
    ByLeaves   as Global, but every worker gets whole micro-batches of the batch, for invariant sums
    Parted     each worker goes through the samples it owns in a random order; the workers take turns
    Sampled    each worker draws from the whole data set with replacement: some samples repeat, some are missed

All are pure functions of (seed, epoch, consumed): resuming needs nothing else. One worker that goes through
`division.order(epoch)` sees exactly the steps that all workers see together.

>>> division = Parted([torch.tensor([0, 1, 2, 3]), torch.tensor([4, 5])], seed=0)
>>> division.counts(consumed=0, count=3), division.counts(3, 3)
((2, 1), (2, 1))
>>> steps = [division.step(epoch=0, consumed=c, count=3, rank=r) for c in (0, 3) for r in (0, 1)]
>>> torch.cat(steps).sort().values
tensor([0, 1, 2, 3, 4, 5])
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol, final

import torch
from torch import Tensor

from shoal.config.choices import options_of
from shoal.config.sections.data import GlobalConfig, PartitionConfig, SamplingConfig
from shoal.config.sections.values import Custom
from shoal.data.division.order import (
    Parts,
    epoch_order,
    even_shares,
    part_order,
    sample_draws,
    shares_by_weight,
    worker_indices,
)
from shoal.data.division.partition import divide
from shoal.errors import ConfigError


class Division(Protocol):
    """Which worker takes which samples of a step, which is samples `consumed` to `consumed + count` of an epoch."""

    num_samples: int
    """Samples of an epoch, over all workers."""
    size: int
    """Number of workers."""

    def step(self, epoch: int, consumed: int, count: int, rank: int) -> Tensor:
        """The indices of one worker's samples in a step."""
        ...

    def counts(self, consumed: int, count: int) -> tuple[int, ...]:
        """Samples of each worker in a step; they add up to the samples of the step."""
        ...

    def order(self, epoch: int) -> Tensor:
        """The samples of the epoch, over all workers, in the order of the steps."""
        ...


class OneOrder(ABC):
    """Each step takes the next samples of one order, and `counts` divides them: the lower ranks have the first ones."""

    def __init__(self, num_samples: int, size: int, order: Callable[[int], Tensor]) -> None:
        self.num_samples = num_samples
        self.size = size
        self._order = lru_cache(maxsize=1)(order)

    def order(self, epoch: int) -> Tensor:
        """The samples of the epoch in the order of the steps; computed once per epoch."""
        return self._order(epoch)

    @abstractmethod
    def counts(self, consumed: int, count: int) -> tuple[int, ...]:
        """Samples of each worker in a step."""

    def step(self, epoch: int, consumed: int, count: int, rank: int) -> Tensor:
        """The worker's slice of the step, after the slices of the lower ranks."""
        return worker_indices(self._order(epoch), consumed, self.counts(consumed, count), rank)


@final
class Global(OneOrder):
    """Divides a step by `shares`: proportional weights of the workers, equal at first.

    They may be changed at any time, to the same values on all workers: this changes which worker computes a sample, and
    never which samples a step has.

    `order` returns the order of an epoch; by default a random permutation. With the order of another division the steps
    have that division's samples: one worker can repeat the steps of a partitioned run, and another number of workers
    can continue it in the middle of an epoch.

    >>> division = Global(100, seed=0, size=3)
    >>> division.counts(0, 64), division.counts(64, 64)
    ((22, 21, 21), (12, 12, 12))
    >>> division.shares = (2, 1, 1)
    >>> division.counts(0, 64)
    (32, 16, 16)
    """

    def __init__(
        self, num_samples: int, seed: int, size: int, order: Callable[[int], Tensor] | None = None
    ) -> None:
        super().__init__(num_samples, size, order or (lambda epoch: epoch_order(num_samples, seed, epoch)))
        self._shares: tuple[float, ...] = (1,) * size
        self._divided = lru_cache(maxsize=8)(shares_by_weight)

    @property
    def shares(self) -> tuple[float, ...]:
        """The workers' proportional shares of a step."""
        return self._shares

    @shares.setter
    def shares(self, shares: Sequence[float]) -> None:
        if len(shares) != self.size:
            raise ConfigError(f"{len(shares)} shares for {self.size} workers: one per worker is required")
        shares_by_weight(1, shares)  # raises if they are invalid
        self._shares = tuple(shares)

    def counts(self, consumed: int, count: int) -> tuple[int, ...]:
        """Samples of each worker in a step; a short last step has the same proportions."""
        return self._divided(min(count, self.num_samples - consumed), self._shares)


@final
class ByLeaves(OneOrder):
    """Divides a step by leaves: consecutive micro-batches of the global batch, the same for any number of workers.

    ::

        batch of 44, micro-batches of 8      leaf 0   leaf 1   leaf 2   leaf 3   leaf 4   leaf 5   –    –
                                                  8        8        8        8        8        4
        1 worker                             |··························· rank 0 ·························|
        2 workers                            |············· rank 0 ·············|········· rank 1 ········|
        4 workers                            |···· rank 0 ····|···· rank 1 ·····|···· rank 2 ····|· rank 3 |

    The leaves are the leaves of a balanced binary tree. Their number is padded to a power of two, so that every worker,
    of 1, 2, 4, … workers, has one whole subtree. Work is even only if the number of leaves is a power of two itself.

    >>> ByLeaves(1000, seed=0, size=2, micro_batch=8).counts(0, 64)
    (32, 32)
    >>> ByLeaves(1000, seed=0, size=4, micro_batch=8).counts(0, 44), ByLeaves(10, 0, 4, 8).counts(0, 64)
    ((16, 16, 12, 0), (8, 2, 0, 0))
    """

    def __init__(
        self,
        num_samples: int,
        seed: int,
        size: int,
        micro_batch: int,
        order: Callable[[int], Tensor] | None = None,
    ) -> None:
        super().__init__(num_samples, size, order or (lambda epoch: epoch_order(num_samples, seed, epoch)))
        self.micro_batch = micro_batch

    def first_leaf(self, consumed: int, count: int, rank: int) -> int:
        """The number of a worker's first leaf in the batch."""
        leaves = -(-min(count, self.num_samples - consumed) // self.micro_batch)
        slots = 1 << max(leaves - 1, self.size - 1, 0).bit_length()
        return rank * slots // self.size

    def counts(self, consumed: int, count: int) -> tuple[int, ...]:
        """Samples of each worker in a step; workers whose leaves are all absent have none."""
        samples = min(count, self.num_samples - consumed)
        starts = [
            min(samples, self.first_leaf(consumed, count, rank) * self.micro_batch)
            for rank in range(self.size + 1)
        ]
        return tuple(stop - start for start, stop in pairwise(starts))


class ByTurns(ABC):
    """Each worker has its own sequence for an epoch and takes the next sample of it at its turn.

    Turns are proportional to the lengths of the sequences and the same in every epoch: all sequences end together, and
    every step has exactly `count` samples. Memory: about 24 bytes per sample.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.num_samples = sum(lengths)
        self.size = len(lengths)
        self._turns = turns(lengths)
        self._turns_of = lru_cache(maxsize=self.size)(lambda rank: (self._turns == rank).nonzero().flatten())
        self._sequence = lru_cache(maxsize=self.size)(self.sequence)

    @abstractmethod
    def sequence(self, epoch: int, rank: int) -> Tensor:
        """One worker's samples of the whole epoch."""

    def counts(self, consumed: int, count: int) -> tuple[int, ...]:
        """Turns of each worker in a step."""
        return tuple(self._turns[consumed : consumed + count].bincount(minlength=self.size).tolist())

    def step(self, epoch: int, consumed: int, count: int, rank: int) -> Tensor:
        """The next samples of the worker's sequence, as many as it has turns in the step."""
        # Numpy's search takes a few microseconds, torch's takes tens.
        start, end = self._turns_of(rank).numpy().searchsorted((consumed, consumed + count)).tolist()
        return self._sequence(epoch, rank)[start:end]

    def order(self, epoch: int) -> Tensor:
        """All workers' sequences, interleaved by turns."""
        order = torch.empty(self.num_samples, dtype=torch.int64)
        for rank in range(self.size):
            order[self._turns_of(rank)] = self._sequence(epoch, rank)
        return order


@final
class Parted(ByTurns):
    """Each worker goes through the part it owns: every sample is used exactly once per epoch."""

    def __init__(self, parts: Sequence[Tensor], seed: int) -> None:
        super().__init__([len(part) for part in parts])
        self._parts = tuple(parts)
        self._seed = seed

    def sequence(self, epoch: int, rank: int) -> Tensor:
        """The worker's part, shuffled for each epoch."""
        return part_order(self._parts[rank], self._seed, epoch, rank)


@final
class Sampled(ByTurns):
    """Each worker draws its samples from the whole data set with replacement; there is no partition.

    An epoch has as many draws as the data set has samples. A sample is missed with probability (1 − 1/N)^N ≈ 1/e: each
    epoch sees a different 63 % or so of the data set.
    """

    def __init__(self, num_samples: int, seed: int, size: int) -> None:
        self._draws = even_shares(num_samples, size)
        super().__init__(self._draws)
        self._seed = seed

    def sequence(self, epoch: int, rank: int) -> Tensor:
        """The worker's draws, different in each epoch."""
        return sample_draws(self.num_samples, self._draws[rank], self._seed, epoch, rank)


def turns(lengths: Sequence[int]) -> Tensor:
    """The rank whose turn it is at each position of an epoch: one turn for each sample, evenly spread.

    Turn j of a worker's n turns is at (j + ½) / n of the epoch; for equal positions the lower rank comes first.

    >>> turns([4, 2]), turns([2, 2, 1])
    (tensor([0, 1, 0, 0, 1, 0]), tensor([0, 1, 2, 0, 1]))
    """
    places = torch.cat([(torch.arange(length, dtype=torch.float64) + 0.5) / length for length in lengths])
    ranks = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return ranks[places.argsort(stable=True)]


def build_division(
    config: PartitionConfig, num_samples: int, size: int, seed: int, labels: Tensor | None = None
) -> Division:
    """The division of a configuration; `labels` are required for partitions that depend on labels.

    >>> from shoal.config.sections.data import DirichletConfig
    >>> division = build_division(DirichletConfig(alpha=1.0), 100, size=2, seed=0, labels=torch.arange(100) % 5)
    >>> division.counts(0, 10)
    (5, 5)
    """
    if isinstance(config, GlobalConfig):
        return Global(num_samples, seed, size)
    if isinstance(config, SamplingConfig):
        return Sampled(num_samples, seed, size)
    return Parted(parts_by(config, num_samples, size, seed, labels), seed)


def parts_by(
    config: PartitionConfig,
    num_samples: int,
    size: int,
    seed: int,
    labels: Tensor | None,
    allow_empty: bool = False,
) -> Parts:
    """The workers' parts by the rule of a configuration."""
    options: dict[str, Any] = dict(config.options) if isinstance(config, Custom) else options_of(config)
    return divide(
        config.name, num_samples, size, labels=labels, seed=seed, allow_empty=allow_empty, **options
    )
