"""Findings: a claim, its numbers, and a verdict that the numbers alone decide.

A claim that can only come out one way is not a finding. If two numbers differ by less than they scatter, the verdict is
"undecided".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles, stdev
from typing import Literal

from shoal.words import Phrase

Verdict = Literal["holds", "fails", "undecided"]
"""The claim holds, does not hold, or is undecided because the difference is within the spread."""

Basis = Literal["seeds", "steps", "rounds", "grid", "samples", "exact", "none"]
"""Where a spread comes from: repeated runs, steps inside one run, rounds in which rivals take turns, the distance of
two candidates, the number of samples. An exact number needs none; `none` is a number whose spread is unknown."""

SPREADS = 2.0
"""A difference counts when it is larger than this many spreads."""
FEWEST_VALUES = 3
"""Fewer values have no spread: two are equal, or close to each other, too often by chance."""


@dataclass(frozen=True)
class Measured:
    """A number, and how much it scatters. A format applies to both; a number without a spread is shown alone.

    >>> f"{Measured(0.5, 0.01, 'seeds', 3):.2f}", f"{Measured(0.5, 0.0, 'none', 2):.2f}"
    ('0.50 ± 0.01', '0.50')
    """

    value: float
    spread: float
    basis: Basis
    count: int
    """The number of observations."""

    def __format__(self, spec: str) -> str:
        if not self.spread:
            return format(self.value, spec)
        return f"{format(self.value, spec)} ± {format(self.spread, spec)}"

    def scaled(self, factor: float) -> "Measured":
        """The same number in another unit."""
        return Measured(self.value * factor, self.spread * factor, self.basis, self.count)


def exactly(value: float) -> Measured:
    """A number that was not measured, such as a bound."""
    return Measured(value, 0.0, "exact", 1)


NOTHING = exactly(0.0)
"""The difference of two things that are the same."""

Number = Measured | float | int | str | Phrase | tuple[str | Phrase, ...]
"""A phrase has the words of the language; several texts are listed as the language does."""


@dataclass(frozen=True)
class Pairs:
    """How a paired comparison went: in how many pairs the difference had the same sign."""

    agreeing: int
    count: int
    by: Literal["seeds", "rounds"]


@dataclass(frozen=True)
class Finding:
    """One claim of an analysis. Its words are in a file per language, under its name."""

    claim: str
    numbers: Mapping[str, Number]
    verdict: Verdict
    pairs: Pairs | None = None
    """Of the comparison that decided it, if it was paired."""
    timed: bool = False
    """Whether it rests on times, also where no pairs of rounds decide it."""
    other_work: float = 0.0
    """The per cent of the machine that other programs used, if that is why it is undecided."""

    @property
    def about_time(self) -> bool:
        """Whether other programs on the machine can change the verdict."""
        return self.timed or (self.pairs is not None and self.pairs.by == "rounds")


def spread_known(values: Sequence[float]) -> bool:
    """Whether values say how much they scatter: there are at least three, and they are not all equal."""
    return len(values) >= FEWEST_VALUES and min(values) < max(values)


def over_seeds(values: Sequence[float]) -> Measured:
    """Mean and standard deviation over repeated runs.

    >>> over_seeds([1.0, 2.0, 3.0])
    Measured(value=2.0, spread=1.0, basis='seeds', count=3)
    >>> over_seeds([1.0, 2.0])
    Measured(value=1.5, spread=0.0, basis='none', count=2)
    """
    if not spread_known(values):
        return Measured(fmean(values), 0.0, "none", len(values))
    return Measured(fmean(values), stdev(values), "seeds", len(values))


def of_samples(part: float, num_samples: int) -> Measured:
    """An accuracy on so many samples, with the standard deviation of the binomial distribution.

    As if two samples more were right and two more were wrong (Agresti and Coull 1998): an accuracy of 100 % is
    uncertain as well.

    >>> f"{of_samples(0.95, 2000).scaled(100):.1f} %"
    '95.0 ± 0.5 %'
    """
    count = num_samples + 4
    nearby = (part * num_samples + 2) / count
    return Measured(part, math.sqrt(nearby * (1 - nearby) / count), "samples", num_samples)


def accuracy_over(values: Sequence[float], num_samples: int) -> Measured:
    """Accuracies of repeated runs; where these do not say how much they scatter, the number of samples does."""
    return over_seeds(values) if spread_known(values) else of_samples(fmean(values), num_samples)


def inside_run(values: Sequence[float]) -> Measured:
    """Median and half the distance of the quartiles: for the steps of one run, whose outliers come from the machine."""
    if not spread_known(values):
        return Measured(median(values), 0.0, "none", len(values))
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return Measured(median(values), (upper - lower) / 2, "steps", len(values))


def lower(a: Measured, b: Measured) -> Verdict:
    """Whether a < b; undecided while they differ by no more than twice the spread of their difference.

        |a − b| ≤ 2 · √(spread_a² + spread_b²)   →   undecided

    If the spread of either is unknown, the verdict is undecided as well.

    >>> lower(Measured(1, 0.1, "seeds", 3), Measured(2, 0.1, "seeds", 3))
    'holds'
    >>> lower(Measured(1, 0.4, "seeds", 3), Measured(2, 0.4, "seeds", 3))
    'undecided'
    """
    if "none" in (a.basis, b.basis) or abs(a.value - b.value) <= SPREADS * math.hypot(a.spread, b.spread):
        return "undecided"
    return "holds" if a.value < b.value else "fails"


def higher(a: Measured, b: Measured) -> Verdict:
    """Whether a > b, by the same rule."""
    return lower(b, a)
