"""The data of a run: the same samples on all workers, and how they divide an epoch."""

from collections.abc import Callable

import torch

from shoal.comm.agree import gather_texts
from shoal.comm.group import Group
from shoal.config.conditions import shares_of
from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.data.division import ByLeaves, Division, Global, build_division
from shoal.errors import ConfigError, DataError
from shoal.training.progress import Progress


def check_same_data(group: Group, data: DataSet) -> list[str]:
    """Refuse to train if a worker's samples differ from rank 0's; the same error on all workers. A collective.

    Workers divide each batch by the indices of its samples, so a function that draws another order on each of them
    would give some samples twice and others never. Returns what identifies the samples. Costs one pass over samples in
    memory.
    """
    mine = identities(data)
    if group.size == 1:
        return mine
    rank_0, *others = [text.split("\n") for text in gather_texts(group, "\n".join(mine))]
    for rank, theirs in enumerate(others, 1):
        for ours, other in zip(rank_0, theirs, strict=False):
            if ours == other:
                continue
            (split, number, _), (_, their_number, _) = ours.split(), other.split()
            fault = f"has {their_number} samples of {split}, and rank 0 has {number}"
            if number == their_number:
                fault = f"has other samples of {split} than rank 0, or in another order"
            raise DataError(f"data {data.name}: rank {rank} {fault}", HINT)
    return mine


def identities(data: DataSet) -> list[str]:
    """For each split its name, the number of its samples, and a checksum of them in their order."""
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    return [f"{name} {len(split)} {split.signature}" for name, split in splits.items() if split is not None]


HINT = (
    "Every worker calls the function, and must get the same samples in the same order: draw random numbers from a "
    "seed, such as numpy.random.default_rng(0) or torch.Generator().manual_seed(0)."
)


def divisions(config: RunConfig, data: DataSet, size: int) -> Callable[[Progress], Division]:
    """The division of the current epoch among `size` workers.

    A run that is resumed within an epoch with another number of workers keeps the order of that epoch's samples and
    divides each of its steps among the new workers, so every sample is still used exactly once. The next epoch uses the
    new division.
    """

    train = data.train
    in_order = (lambda epoch: torch.arange(len(train))) if train.is_stream else None
    if in_order and config.partition.name != "global":
        raise ConfigError(
            f"--partition {config.partition.name} needs samples in any order, and {data.name} has one order alone",
            "Leave --partition out, or return a data set with __getitem__.",
        )

    def among(workers: int) -> Division:
        if in_order:
            return Global(len(train), config.seed, workers, in_order)
        labels = train.classes
        return build_division(
            config.partition, len(train), workers, config.seed, None if labels is None else labels.cpu()
        )

    if config.train.reduction == "invariant":
        # A step's samples depend on (seed, epoch, consumed) alone, so a resumed epoch gets the same ones.
        leaves = ByLeaves(len(train), config.seed, size, config.train.micro_batch, in_order)
        return lambda progress: leaves
    own = among(size)
    if isinstance(own, Global):
        own.shares = shares_of(config.launch.bottleneck, size)

    def division(progress: Progress) -> Division:
        if not progress.consumed or progress.divided_among == size or isinstance(own, Global):
            return own
        return Global(len(train), config.seed, size, order=among(progress.divided_among).order)

    return division
