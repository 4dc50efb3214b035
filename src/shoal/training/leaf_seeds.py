"""Random numbers that belong to a leaf of the batch, and not to the worker that computes it."""

from collections.abc import Callable

from shoal.data.division import ByLeaves, Division
from shoal.training.progress import Progress
from shoal.training.random_state import RandomState


def seeding(
    random: RandomState, seed: int, division: Division, progress: Progress, count: int, rank: int
) -> Callable[[int], None]:
    """What a share calls before each of its parts.

    Where a division gives workers the leaves of one tree, a leaf's random numbers follow from (seed, step, leaf): its
    dropout masks do not depend on which worker computes it. Otherwise nothing happens: a worker's random numbers follow
    each other.
    """
    if not isinstance(division, ByLeaves):
        return lambda part: None
    first = division.first_leaf(progress.consumed, count, rank)
    return lambda part: random.restart("leaf", seed, progress.step, first + part)
