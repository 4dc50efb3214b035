"""Random numbers that belong to a leaf of the batch, and not to the worker that computes it."""

from typing import final

from shoal.data.division import ByLeaves
from shoal.training.hooks import Hook
from shoal.training.progress import Progress
from shoal.training.random_state import RandomState


@final
class LeafSeeds(Hook):
    """Where workers divide the leaves of one tree, a leaf's random numbers follow from (seed, step, leaf).

    Its dropout masks then do not depend on which worker computes it.
    """

    def __init__(self, random: RandomState, seed: int, division: ByLeaves, rank: int) -> None:
        self._random, self._seed, self._division, self._rank = random, seed, division, rank
        self._step = self._first = 0

    def before_step(self, progress: Progress, num_samples: int) -> None:
        """Find this worker's first leaf."""
        self._step = progress.step
        self._first = self._division.first_leaf(progress.consumed, num_samples, self._rank)

    def before_part(self, part: int) -> None:
        """Seed the next leaf."""
        self._random.restart("leaf", self._seed, self._step, self._first + part)
