"""Choosing a learning rate: the same short search for every optimizer, decided by the validation loss.

Phase 1: try every candidate. Phase 2: if the best is the smallest or the largest, it may not be the best at all, so
the grid is extended once beyond that edge. Phase 3: choose.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.errors import DivergedError

EXTENSION = 2
"""Candidates added beyond an edge."""
TRAINS_WITHIN = 2.0
"""A rate counts as one that trains when its validation loss is at most this many times the best one's."""


@dataclass(frozen=True)
class Trial:
    """A candidate and what came of it; a loss that is not a number any more counts as infinite."""

    rate: float
    validation_loss: float

    @property
    def diverged(self) -> bool:
        """Whether the run stopped because its loss was no number any more."""
        return math.isinf(self.validation_loss)


@dataclass(frozen=True)
class Sweep:
    """A finished search, candidates in rising order."""

    optimizer: str
    trials: tuple[Trial, ...]
    extended: int
    """How many candidates were added because the best stood at the edge."""

    @property
    def best(self) -> Trial:
        """The candidate with the lowest validation loss."""
        return min(self.trials, key=lambda trial: trial.validation_loss)

    @property
    def at_edge(self) -> bool:
        """Whether the best is still the first or the last candidate: a better one may lie beyond."""
        return self.best in (self.trials[0], self.trials[-1])

    def rates_that_train(self) -> int:
        """How many candidates come near the best."""
        limit = TRAINS_WITHIN * self.best.validation_loss
        return sum(trial.validation_loss <= limit for trial in self.trials)


def sweep(optimizer: str, rates: Sequence[float], validation_loss: Callable[[float], float]) -> Sweep:
    """Find the best of these rates by `validation_loss(rate)`, which trains with it (inf if training diverged).

    >>> sweep("sgd", [0.1, 0.3, 1.0], lambda rate: abs(rate - 0.3)).best.rate
    0.3
    >>> [trial.rate for trial in sweep("sgd", [0.1, 0.3, 1.0], lambda rate: abs(rate - 3.0)).trials]
    [0.1, 0.3, 1.0, 3.0, 10.0]
    """
    first = tuple(Trial(rate, validation_loss(rate)) for rate in sorted(rates))
    result = Sweep(optimizer, first, extended=0)
    if all(trial.diverged for trial in first):
        raise DivergedError(
            f"{optimizer} diverges at every learning rate from {first[0].rate:g} to {first[-1].rate:g}"
        )
    if not result.at_edge or len(first) < 2:
        return result
    beyond = [Trial(rate, validation_loss(rate)) for rate in _beyond(result)]
    return Sweep(optimizer, tuple(sorted((*first, *beyond), key=lambda trial: trial.rate)), len(beyond))


def _beyond(result: Sweep) -> list[float]:
    """The next candidates outside, at the grid's own distances: 0.3, 1.0 are followed by 3.0, 10.0."""
    rates = [trial.rate for trial in result.trials]
    upwards = result.best == result.trials[-1]
    last, before = (rates[-1], rates[-2]) if upwards else (rates[0], rates[1])
    decade = 10.0 if upwards else 0.1
    return [float(f"{rate:.3g}") for rate in (before * decade, last * decade)][:EXTENSION]
