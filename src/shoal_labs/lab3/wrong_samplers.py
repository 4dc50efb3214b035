"""Two wrong samplers that train without any sign of an error: kept to be measured, never to be used.

Both are found in published solutions. The loss falls, the accuracy is high; only counting shows that a part of the data
set is never seen by anyone.

>>> from shoal.data.division.coverage import survey
>>> samplers = [SeedPerRank(range(10_000), num_replicas=4, rank=rank) for rank in range(4)]
>>> seen = survey([torch.tensor(list(sampler)) for sampler in samplers], num_samples=10_000)
>>> round(seen.coverage, 2), round(coverage_of_seed_per_rank(4), 2)
(0.68, 0.68)
"""

from collections.abc import Iterator, Sized
from typing import final

import torch
from torch.utils.data import Sampler

from shoal.kit.division import epoch_order, generator_for


@final
class OneWorkersRange(Sampler[int]):
    """Shuffles a range of one worker's length instead of the whole data set's.

    Every worker goes through the first N/W samples; all the others are never seen. At two workers that is half of
    the data set. The epoch has the right length, so nothing shows the error.
    """

    def __init__(self, dataset: Sized, num_replicas: int, rank: int, seed: int = 0) -> None:
        self.num_samples = len(dataset) // num_replicas
        self.rank = rank
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch's order."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = generator_for("wrong", self.seed, self.epoch, self.rank)
        # Wrong: num_samples is one worker's, not the data set's.
        return iter(torch.randperm(self.num_samples, generator=generator).tolist())

    def __len__(self) -> int:
        return self.num_samples


@final
class SeedPerRank(Sampler[int]):
    """Takes every W-th sample of a permutation whose seed is the rank's own, where one common permutation was meant.

    Workers cut different permutations. A worker misses a sample with probability 1 − 1/W, and all W of them do
    with (1 − 1/W)^W: in every epoch a quarter of the data set (two workers) to 1/e of it (many) is seen by no worker.
    """

    def __init__(self, dataset: Sized, num_replicas: int, rank: int, seed: int = 0) -> None:
        self.num_samples = len(dataset)
        self.num_replicas = num_replicas
        self.rank = rank
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch's order."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        # Wrong: the seed knows the rank.
        order = epoch_order(self.num_samples, self.seed + self.rank, self.epoch)
        return iter(order[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return len(range(self.rank, self.num_samples, self.num_replicas))


def coverage_of_one_workers_range(num_replicas: int) -> float:
    """The part of the data set that is seen when everyone ranges over one worker's length: 1/W."""
    return 1 / num_replicas


def coverage_of_seed_per_rank(num_replicas: int) -> float:
    """The part of the data set that is seen in an epoch when every rank has a seed of its own: 1 − (1 − 1/W)^W.

    >>> [round(coverage_of_seed_per_rank(size), 3) for size in (1, 2, 4, 8)]
    [1.0, 0.75, 0.684, 0.656]
    """
    return 1 - (1 - 1 / num_replicas) ** num_replicas
