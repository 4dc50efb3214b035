"""Samplers for any torch DataLoader: one worker's samples of an epoch, in order.

::

    DistributedSampler   every W-th sample of one common order; as torch's, but no sample is used twice
    PartitionSampler     the worker's own samples, by any rule of `shoal.data.division.partition`
    RandomSampler        draws from the whole data set with replacement

All take the number of workers and the rank, or read torchrun's environment variables. `set_epoch` selects the order;
without it every epoch has the same one. `counts` are the samples of each worker: they may differ by one, so a worker
may have one batch more than another. `step_sizes(batch_size)` are the samples of each step over all workers, by which
a loss must be divided to be exact.

>>> from torch.utils.data import DataLoader, TensorDataset
>>> data = TensorDataset(torch.arange(7))
>>> samplers = [DistributedSampler(data, num_replicas=2, rank=rank) for rank in range(2)]
>>> loaders = [DataLoader(data, batch_size=2, sampler=sampler) for sampler in samplers]
>>> torch.cat([batch for loader in loaders for (batch,) in loader]).sort().values
tensor([0, 1, 2, 3, 4, 5, 6])
>>> samplers[0].counts, samplers[0].step_sizes(batch_size=2)
((4, 3), (4, 3))
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, Subset

from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Count, Seed
from shoal.data.division.order import epoch_order, even_shares, part_order, sample_draws
from shoal.data.division.partition import Rule
from shoal.data.division.subsets import length_of, partition
from shoal.errors import ArgumentError, ConfigError

_epochs = threading.local()


def epochs_begun() -> int:
    """How many times this thread, which may be one of several workers, has called `set_epoch` of any sampler."""
    return getattr(_epochs, "begun", 0)


class WorkerSampler(Sampler[int], ABC):
    """The base of the samplers. Iterating does not use torch's global random state."""

    def __init__(self, dataset: Dataset[Any], num_replicas: int | None, rank: int | None, seed: Seed) -> None:
        self.dataset = dataset
        self.num_samples = length_of(dataset)
        """Samples of the whole data set."""
        self.rank, self.num_replicas = place_of(num_replicas, rank, os.environ)
        self.seed = int(seed)
        self.epoch = 0
        if self.num_samples < self.num_replicas:
            raise ConfigError(
                f"{self.num_samples:,} samples are too few for {self.num_replicas:,} workers",
                f"Use at most {self.num_samples:,} workers.",
            )

    @property
    @abstractmethod
    def counts(self) -> tuple[int, ...]:
        """Samples of an epoch of each worker, by rank."""

    @abstractmethod
    def indices(self) -> Tensor:
        """This worker's samples of the current epoch, in order."""

    @checks_arguments
    def set_epoch(self, epoch: int) -> None:
        """Select the epoch's order; call it on all workers before each epoch."""
        self.epoch = epoch
        _epochs.begun = epochs_begun() + 1

    @checks_arguments
    def step_sizes(self, batch_size: Count) -> tuple[int, ...]:
        """The samples of each step over all workers, if each takes `batch_size` until it has none left."""
        most = max(self.counts)
        starts = range(0, most, batch_size)
        return tuple(sum(min(max(count - start, 0), batch_size) for count in self.counts) for start in starts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices().tolist())

    def __len__(self) -> int:
        return self.counts[self.rank]


@final
class DistributedSampler(WorkerSampler):
    """Every W-th sample of one common order: a drop-in replacement for torch's, with exact shares.

    Torch repeats samples until all workers have the same number, so some count twice. Here every sample is used once,
    and shares may differ by one; `drop_last=True` omits the remainder.
    """

    @checks_arguments
    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: Count | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: Seed = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, seed)
        self.shuffle = shuffle
        self.drop_last = drop_last

    @property
    def counts(self) -> tuple[int, ...]:
        """Samples of each worker: equal to within one, or exactly with `drop_last`."""
        left_over = self.num_samples % self.num_replicas if self.drop_last else 0
        return even_shares(self.num_samples - left_over, self.num_replicas)

    def indices(self) -> Tensor:
        """Every W-th sample of the epoch's order, starting at the rank."""
        if self.shuffle:
            order = epoch_order(self.num_samples, self.seed, self.epoch)
        else:
            order = torch.arange(self.num_samples)
        return order[self.rank :: self.num_replicas][: len(self)]


@final
class PartitionSampler(WorkerSampler):
    """The worker's own samples in random order; `by` and the options are those of `shoal.partition`."""

    @checks_arguments
    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: Count | None = None,
        rank: int | None = None,
        by: str | Rule = "random",
        shuffle: bool = True,
        seed: Seed = 0,
        *,
        sizes: Sequence[float] | None = None,
        labels: Sequence[Any] | Tensor | None = None,
        allow_empty: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, seed)
        self.shuffle = shuffle
        self.parts = partition(
            dataset,
            sizes,
            workers=self.num_replicas,
            by=by,
            seed=seed,
            labels=labels,
            allow_empty=allow_empty,
            **options,
        ).parts

    @property
    def counts(self) -> tuple[int, ...]:
        """Samples of each worker."""
        return tuple(len(part) for part in self.parts)

    def indices(self) -> Tensor:
        """This worker's part, shuffled for the epoch unless `shuffle` is False."""
        part = self.parts[self.rank]
        return part_order(part, self.seed, self.epoch, self.rank) if self.shuffle else part


@final
class RandomSampler(WorkerSampler):
    """Draws from the whole data set with replacement.

    N draws see 1 − (1 − 1/N)^N ≈ 63 % of the samples.
    """

    @checks_arguments
    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: Count | None = None,
        rank: int | None = None,
        seed: Seed = 0,
        draws: Count | None = None,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, seed)
        self.draws = self.num_samples if draws is None else draws
        """Draws of an epoch over all workers; by default the number of samples."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Draws of each worker."""
        return even_shares(self.draws, self.num_replicas)

    def indices(self) -> Tensor:
        """This worker's draws of the epoch."""
        return sample_draws(self.num_samples, len(self), self.seed, self.epoch, self.rank)


def place_of(num_replicas: int | None, rank: int | None, environment: Mapping[str, str]) -> tuple[int, int]:
    """Rank and number of workers: as given, else from torchrun's RANK and WORLD_SIZE.

    >>> place_of(None, None, {"RANK": "1", "WORLD_SIZE": "4"})
    (1, 4)
    """
    if num_replicas is None and rank is None:
        try:
            rank, num_replicas = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        except (KeyError, ValueError):
            raise ConfigError(
                "a sampler requires num_replicas and rank: RANK and WORLD_SIZE are not set in the environment",
                "Pass num_replicas=group.size, rank=group.rank, or start the program with torchrun.",
            ) from None
    if num_replicas is None or rank is None:
        missing = "rank" if rank is None else "num_replicas"
        raise ConfigError(f"a sampler requires num_replicas and rank: {missing} is missing")
    if not 0 <= rank < num_replicas:
        raise ConfigError(
            f"rank {rank} is out of range for {num_replicas} workers", f"Ranks are 0 to {num_replicas - 1}."
        )
    return rank, num_replicas


@checks_arguments
def check_loader(loader: DataLoader[Any], num_replicas: Count) -> None:
    """Raise a ConfigError if every worker gets all samples, or if the sampler divides for another number of workers.

    Checks the sampler's type only, at no cost. A user's own sampler is accepted, and so is a `Subset`, which may be
    this worker's part. `shoal.data.division.coverage` measures the samples themselves.

    >>> check_loader(DataLoader(range(8)), num_replicas=2)
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: the DataLoader gives each of 2 workers all 8 samples: its sampler is a SequentialSampler
      Divide them: sampler=shoal.DistributedSampler(dataset, num_replicas=2, rank=rank), and no shuffle.
    """
    if not hasattr(loader, "batch_sampler"):
        raise ArgumentError(f"loader is a value of type {type(loader).__name__}, expected a torch DataLoader")
    if num_replicas == 1:
        return
    # With a batch sampler, torch never uses the loader's own `sampler`.
    batches = loader.batch_sampler
    sampler = loader.sampler if batches is None else getattr(batches, "sampler", None)
    undivided = torch.utils.data.RandomSampler | torch.utils.data.SequentialSampler
    if isinstance(sampler, undivided) and not isinstance(loader.dataset, Subset):
        raise ConfigError(
            f"the DataLoader gives each of {num_replicas} workers all {length_of(loader.dataset):,} samples: "
            f"its sampler is a {type(sampler).__name__}",
            f"Divide them: sampler=shoal.DistributedSampler(dataset, num_replicas={num_replicas}, rank=rank), "
            "and no shuffle.",
        )
    divided_among = getattr(sampler, "num_replicas", num_replicas)
    if divided_among != num_replicas:
        raise ConfigError(
            f"the DataLoader's sampler divides the samples among {divided_among} workers, but there are {num_replicas}",
            f"Make the sampler with num_replicas={num_replicas}.",
        )
