"""Check that a DataLoader divides the data set: otherwise every worker silently does all the work."""

from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset

from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Count
from shoal.data.division.labels import length_of
from shoal.errors import ArgumentError, ConfigError


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
    if isinstance(sampler, RandomSampler | SequentialSampler) and not isinstance(loader.dataset, Subset):
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
