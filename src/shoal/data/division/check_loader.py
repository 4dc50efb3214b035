"""Whether a DataLoader divides the data set among the workers: the error that costs W times the work, silently."""

from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset

from shoal.data.division.labels import length_of
from shoal.errors import ConfigError


def check_loader(loader: DataLoader[Any], num_replicas: int) -> None:
    """Raise a ConfigError for a loader that gives every worker all samples, or a share of another number of workers.

    Looks at the sampler alone, so it costs nothing; a sampler of the user's own is trusted, and so is a `Subset`, which
    may be this worker's part. `shoal.data.division.coverage` measures what looking cannot tell.

    >>> check_loader(DataLoader(range(8)), num_replicas=2)
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: the DataLoader gives each of 2 workers all 8 samples: its sampler is a SequentialSampler
      Divide them: sampler=shoal.DistributedSampler(dataset, num_replicas=2, rank=rank), and no shuffle.
    """
    if num_replicas == 1:
        return
    # Beside a batch sampler the loader's own `sampler` is one that torch made up and never uses.
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
            f"the DataLoader's sampler divides the samples among {divided_among} workers, and there are {num_replicas}",
            f"Make the sampler with num_replicas={num_replicas}.",
        )
