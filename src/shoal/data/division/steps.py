"""How the samples of every step are divided among workers: what the training loop asks.

An epoch goes through as many samples as the data set has, in one order that all workers know; a step takes the next
`count` of it, and a division says who takes which of them:

::

    Global     the order is random, and every step is divided anew: who computes changes, what is computed never does
    Parted     each worker goes through the samples it owns, in a random order of its own; their turns make the order
    Sampled    each worker draws from the whole data set with replacement: some samples come twice, some never

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
from typing import Any, Protocol, final

import torch
from torch import Tensor

from shoal.config.kinds import options_of
from shoal.config.schema import Custom, GlobalConfig, PartitionConfig, SamplingConfig
from shoal.data.division.order import (
    epoch_order,
    even_shares,
    part_order,
    sample_draws,
    shares_by_weight,
    worker_indices,
)
from shoal.data.division.partition import divide
from shoal.data.division.parts import Parts
from shoal.errors import ConfigError


class Division(Protocol):
    """Who takes which samples of a step. A step takes an epoch from `consumed` to min(consumed + count, samples)."""

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, over all workers together."""
        ...

    @property
    def size(self) -> int:
        """How many workers there are."""
        ...

    def step(self, epoch: int, consumed: int, count: int, rank: int) -> Tensor:
        """The indices of one worker's samples in a step."""
        ...

    def counts(self, consumed: int, count: int) -> tuple[int, ...]:
        """How many samples each worker has in a step; they add up to the samples of the step."""
        ...

    def order(self, epoch: int) -> Tensor:
        """The samples of the whole epoch, over all workers, as the steps take them."""
        ...


@final
class Global:
    """Every step takes the next samples of one order and divides them by `shares`: it equals one machine exactly.

    `shares` are the workers' shares of a step, as numbers in proportion; even at first. They may be replaced at any
    time, by the same ones on all workers: who computes a sample changes, and never which samples a step has.

    `order` gives the order of each epoch; by default a random one. With the order of another division the steps are
    that division's own: so one machine repeats what workers with parts of their own did, and so other workers go on
    in the middle of an epoch.

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
        self.num_samples = num_samples
        self.size = size
        self._shares: tuple[float, ...] = (1,) * size
        self._divided = lru_cache(maxsize=8)(shares_by_weight)
        self._order = lru_cache(maxsize=1)(order or (lambda epoch: epoch_order(num_samples, seed, epoch)))

    @property
    def shares(self) -> tuple[float, ...]:
        """The workers' shares of a step, in proportion to each other."""
        return self._shares

    @shares.setter
    def shares(self, shares: Sequence[float]) -> None:
        if len(shares) != self.size:
            raise ConfigError(f"{len(shares)} shares for {self.size} workers: every worker needs one")
        shares_by_weight(1, shares)  # refuses what cannot be shares
        self._shares = tuple(shares)

    def order(self, epoch: int) -> Tensor:
        """The samples of the epoch in the order in which the steps take them; computed once per epoch."""
        return self._order(epoch)

    def counts(self, consumed: int, count: int) -> tuple[int, ...]:
        """How many samples each worker has in a step; a short last step is shared in the same proportion."""
        return self._divided(min(count, self.num_samples - consumed), self._shares)

    def step(self, epoch: int, consumed: int, count: int, rank: int) -> Tensor:
        """The worker's stretch of the step, after those of the lower ranks."""
        return worker_indices(self._order(epoch), consumed, self.counts(consumed, count), rank)


class ByTurns(ABC):
    """Each worker has a sequence of its own for an epoch, and takes from it when it is its turn.

    Turns are in proportion to the lengths of the sequences and the same in every epoch: all sequences end together,
    and every step has exactly `count` samples. Costs about 24 bytes per sample.
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
        """How many turns of the step each worker has."""
        return tuple(self._turns[consumed : consumed + count].bincount(minlength=self.size).tolist())

    def step(self, epoch: int, consumed: int, count: int, rank: int) -> Tensor:
        """The next samples of the worker's sequence, as many as it has turns in the step."""
        # Numpy's search takes a few microseconds where torch's takes tens, and a step asks for nothing else.
        start, end = self._turns_of(rank).numpy().searchsorted((consumed, consumed + count)).tolist()
        return self._sequence(epoch, rank)[start:end]

    def order(self, epoch: int) -> Tensor:
        """All workers' sequences, woven together by turns."""
        woven = torch.empty(self.num_samples, dtype=torch.int64)
        for rank in range(self.size):
            woven[self._turns_of(rank)] = self._sequence(epoch, rank)
        return woven


@final
class Parted(ByTurns):
    """Each worker goes through the part it owns: every sample is used exactly once per epoch."""

    def __init__(self, parts: Sequence[Tensor], seed: int) -> None:
        super().__init__([len(part) for part in parts])
        self._parts = tuple(parts)
        self._seed = seed

    def sequence(self, epoch: int, rank: int) -> Tensor:
        """The worker's part, shuffled anew for every epoch."""
        return part_order(self._parts[rank], self._seed, epoch, rank)


@final
class Sampled(ByTurns):
    """Each worker draws its samples from the whole data set, with replacement; no partition.

    An epoch has as many draws as there are samples. A sample is missed by all of them with probability
    (1 − 1/N)^N ≈ 1/e: an epoch sees about 63 % of the data set, and which 63 % changes from epoch to epoch.
    """

    def __init__(self, num_samples: int, seed: int, size: int) -> None:
        self._draws = even_shares(num_samples, size)
        super().__init__(self._draws)
        self._seed = seed

    def sequence(self, epoch: int, rank: int) -> Tensor:
        """The worker's draws, other ones in every epoch."""
        return sample_draws(self.num_samples, self._draws[rank], self._seed, epoch, rank)


def turns(lengths: Sequence[int]) -> Tensor:
    """Whose turn it is at each place of an epoch: every worker as often as it has samples, evenly spread.

    The j-th of a worker's n turns lies at (j + ½) / n of the epoch; of equals the lower rank comes first.

    >>> turns([4, 2]), turns([2, 2, 1])
    (tensor([0, 1, 0, 0, 1, 0]), tensor([0, 1, 2, 0, 1]))
    """
    places = torch.cat([(torch.arange(length, dtype=torch.float64) + 0.5) / length for length in lengths])
    ranks = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return ranks[places.argsort(stable=True)]


def build_division(
    config: PartitionConfig, num_samples: int, size: int, seed: int, labels: Tensor | None = None
) -> Division:
    """The division that a configuration asks for; `labels` are needed by those that go by them.

    >>> from shoal.config.schema import DirichletConfig
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
    """The parts that workers own by the rule of a configuration."""
    options: dict[str, Any] = dict(config.options) if isinstance(config, Custom) else options_of(config)
    return divide(
        config.name, num_samples, size, labels=labels, seed=seed, allow_empty=allow_empty, **options
    )
