"""Paired comparisons: two things measured together, seed by seed or round by round, so that luck falls on both.

A difference counts when its 99.9 % confidence interval leaves out zero: where there is no difference at all, at most
one comparison in a thousand finds one. More pairs narrow the interval; the level stays.

    few pairs    mean difference, interval of Student's t
    eleven, …    median difference, interval of the median (sign test): the machine disturbs some rounds badly, and
                 a seed may be an outlier; a sign test does not depend on how far off they are. (A signed-rank test
                 gives a disturbed round the highest rank: where a tenth of the rounds are, it decides half as often.)

The spread of a difference is half the distance from it to the end of its interval that is nearer to zero, so the rule
of `findings.lower` is this rule.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, median, stdev
from typing import Literal

from shoal.report.findings import (
    NOTHING,
    SPREADS,
    Measured,
    Pairs,
    Verdict,
    inside_run,
    lower,
    over_seeds,
    spread_known,
)

LEVEL = 0.999
"""Confidence of the interval."""
FEWEST = 4
"""Fewer pairs decide nothing: counted numbers, such as accuracies, are equal too often by chance. Neither do pairs that
all differ by the same: nothing is known about how much they scatter."""
NARROW = 0.03
"""An interval is narrow if it is at most this part of the larger number on either side."""
_STUDENT = (
    "636.62 31.599 12.924 8.610 6.869 5.959 5.408 5.041 4.781 4.587 "
    "4.437 4.318 4.221 4.140 4.073 4.015 3.965 3.922 3.883 3.850"
)
STUDENT = tuple(map(float, _STUDENT.split()))
"""Student's t at this level, by degrees of freedom from 1 on; beyond the last one it would still fall to 3.29."""


@dataclass(frozen=True)
class Paired:
    """Two numbers and their difference."""

    first: Measured
    second: Measured
    difference: Measured
    """First − second, pair by pair."""
    agreeing: int
    """Pairs whose difference has the more frequent sign."""
    by: Literal["seeds", "rounds"]

    @property
    def pairs(self) -> Pairs:
        """What a report says about the comparison."""
        return Pairs(self.agreeing, self.difference.count, self.by)

    @property
    def ratio(self) -> float:
        """How many times as large the first is; 0 where the second is zero."""
        return self.first.value / self.second.value if self.second.value else 0.0

    @property
    def is_same(self) -> bool:
        """Whether both numbers are equal in every pair, of at least as many as can decide."""
        return not self.agreeing and self.difference.count >= FEWEST

    @property
    def settled(self) -> bool:
        """Whether more pairs would change little: the interval is narrow, or further from zero than it is long."""
        length = SPREADS * self.difference.spread
        narrow = NARROW * max(abs(self.first.value), abs(self.second.value))
        return self.difference.basis != "none" and length <= max(narrow, abs(self.difference.value) / 2)

    def scaled(self, factor: float) -> "Paired":
        """The same numbers in another unit."""
        first, second, apart = (part.scaled(factor) for part in (self.first, self.second, self.difference))
        return replace(self, first=first, second=second, difference=apart)


def by_seeds(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare runs seed by seed: both start from the same weights and see the same samples.

    >>> f"{by_seeds([0.7, 0.8, 0.7, 0.8], [0.4, 0.6, 0.5, 0.5]).difference:.2f}"
    '0.25 ± 0.19'
    """
    return _paired(over_seeds, first, second, "seeds")


def by_rounds(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare times round by round: both had a turn in the same second of the machine.

    >>> by_rounds([3.0, 4.0, 9.0] * 4, [1.0, 2.0, 3.0] * 4).difference
    Measured(value=2.0, spread=0.0, basis='rounds', count=12)
    """
    return _paired(inside_run, first, second, "rounds")


def _paired(
    measured: Callable[[Sequence[float]], Measured],
    first: Sequence[float],
    second: Sequence[float],
    by: Literal["seeds", "rounds"],
) -> Paired:
    apart = [a - b for a, b in zip(first, second, strict=True)]
    agreeing = max(sum(each > 0 for each in apart), sum(each < 0 for each in apart))
    return Paired(measured(first), measured(second), median_difference(apart), agreeing, by)


def first_lower(pair: Paired) -> Verdict:
    """Whether the first number is the lower one."""
    return lower(pair.difference, NOTHING)


def first_higher(pair: Paired) -> Verdict:
    """Whether the first number is the higher one."""
    return lower(NOTHING, pair.difference)


def mean_difference(differences: Sequence[float]) -> Measured:
    """The mean of some differences, with half of its interval by Student's t as spread."""
    count = len(differences)
    if count < FEWEST or not spread_known(differences):
        return Measured(fmean(differences), 0.0, "none", count)
    error = stdev(differences) / math.sqrt(count)
    return Measured(fmean(differences), STUDENT[min(count - 1, len(STUDENT)) - 1] * error / 2, "seeds", count)


def median_difference(differences: Sequence[float]) -> Measured:
    """The median of some differences, with half of its interval towards zero as spread."""
    count, outside = len(differences), outside_interval(len(differences))
    if not outside or not spread_known(differences):  # too few for a sign test of this level, or all equal
        return mean_difference(differences)
    middle, ordered = median(differences), sorted(differences)
    end = ordered[outside - 1] if middle > 0 else ordered[-outside]
    return Measured(middle, abs(middle - end) / 2, "rounds", count)


def typical(values: Sequence[float]) -> Measured:
    """The median of some numbers, with half of the longer side of its interval as spread.

    >>> typical([float(each) for each in range(11)])
    Measured(value=5.0, spread=2.5, basis='rounds', count=11)
    """
    outside = outside_interval(len(values))
    if not outside or not spread_known(values):
        return mean_difference(values)
    middle, ordered = median(values), sorted(values)
    longer = max(middle - ordered[outside - 1], ordered[-outside] - middle)
    return Measured(middle, longer / 2, "rounds", len(values))


@cache
def outside_interval(count: int) -> int:
    """Which of the ordered differences is the end of the median's interval, counted from outside; 0 if there is none.

    It is the largest k for which fewer than k of `count` fair coins show heads with a probability of at most
    (1 − LEVEL) / 2.

    >>> [outside_interval(count) for count in (10, 11, 15, 20)]
    [0, 1, 2, 3]
    """
    tail, k = 0.0, 0
    # The logarithm of the number of ways: the number itself has 30,000 digits for the steps of a long run.
    ways = math.lgamma(count + 1) - count * math.log(2)
    while k < count:
        tail += math.exp(ways - math.lgamma(k + 1) - math.lgamma(count - k + 1))
        if tail > (1 - LEVEL) / 2:
            break
        k += 1
    return k
