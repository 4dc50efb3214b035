"""Which division an epoch has: the run's own, or what is left of one among another number of workers."""

from collections.abc import Callable

from shoal.config.conditions import shares_of
from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.data.division import Division, Global, build_division
from shoal.train.progress import Progress


def divisions(config: RunConfig, data: DataSet, size: int) -> Callable[[Progress], Division]:
    """The division of the epoch in progress, among `size` workers.

    A run that goes on in mid-epoch with another number of workers keeps that epoch's order of the samples, and divides
    every step of it anew: each sample is still used exactly once. With the next epoch its own division begins.
    """

    def among(workers: int) -> Division:
        return build_division(
            config.partition, len(data.train), workers, config.seed, data.train.labels.cpu()
        )

    own = among(size)
    if isinstance(own, Global):
        own.shares = shares_of(config.launch.bottleneck, size)

    def division(progress: Progress) -> Division:
        if not progress.consumed or progress.divided_among == size or isinstance(own, Global):
            return own
        return Global(len(data.train), config.seed, size, order=among(progress.divided_among).order)

    return division
