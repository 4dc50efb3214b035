"""The division of an epoch among workers, also when a run is resumed with another number of workers."""

from collections.abc import Callable

from shoal.config.conditions import shares_of
from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.data.division import ByLeaves, Division, Global, build_division
from shoal.training.progress import Progress


def divisions(config: RunConfig, data: DataSet, size: int) -> Callable[[Progress], Division]:
    """The division of the current epoch among `size` workers.

    A run that is resumed within an epoch with another number of workers keeps the order of that epoch's samples and
    divides each of its steps among the new workers, so every sample is still used exactly once. The next epoch uses the
    new division.
    """

    def among(workers: int) -> Division:
        return build_division(
            config.partition, len(data.train), workers, config.seed, data.train.labels.cpu()
        )

    if config.train.reduction == "invariant":
        # The samples of a step depend on nothing else, so neither do those of a resumed epoch.
        leaves = ByLeaves(len(data.train), config.seed, size, config.train.micro_batch)
        return lambda progress: leaves
    own = among(size)
    if isinstance(own, Global):
        own.shares = shares_of(config.launch.bottleneck, size)

    def division(progress: Progress) -> Division:
        if not progress.consumed or progress.divided_among == size or isinstance(own, Global):
            return own
        return Global(len(data.train), config.seed, size, order=among(progress.divided_among).order)

    return division
