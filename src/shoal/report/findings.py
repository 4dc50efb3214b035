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

Basis = Literal["seeds", "steps", "rounds", "grid", "none"]
"""Where a spread comes from: repeated runs, steps inside one run, rounds in which rivals take turns, the distance of
two candidates; or it has none."""

SPREADS = 2.0
"""A difference counts when it is larger than this many spreads."""


@dataclass(frozen=True)
class Measured:
    """A number, and how much it scatters. A format applies to both.

    >>> f"{Measured(0.5, 0.01, 'seeds', 3):.2f}"
    '0.50 ± 0.01'
    """

    value: float
    spread: float
    basis: Basis
    count: int
    """The number of observations."""

    def __format__(self, spec: str) -> str:
        if self.count < 2 and not self.spread:
            return format(self.value, spec)
        return f"{format(self.value, spec)} ± {format(self.spread, spec)}"

    def scaled(self, factor: float) -> "Measured":
        """The same number in another unit."""
        return Measured(self.value * factor, self.spread * factor, self.basis, self.count)


NOTHING = Measured(0.0, 0.0, "none", 1)
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


def over_seeds(values: Sequence[float]) -> Measured:
    """Mean and standard deviation over repeated runs. One run alone has no spread.

    >>> over_seeds([1.0, 2.0, 3.0])
    Measured(value=2.0, spread=1.0, basis='seeds', count=3)
    """
    if len(values) < 2:
        return Measured(values[0], 0.0, "none", 1)
    return Measured(fmean(values), stdev(values), "seeds", len(values))


def lead(higher: Sequence[float], lower: Sequence[float]) -> Measured:
    """By how much the runs of one series are above those of another, seed by seed: the luck of a seed falls on both.

    >>> lead([0.75, 0.5], [0.5, 0.25])
    Measured(value=0.25, spread=0.0, basis='seeds', count=2)
    """
    return over_seeds([a - b for a, b in zip(higher, lower, strict=True)])


def inside_run(values: Sequence[float]) -> Measured:
    """Median and half the distance of the quartiles: for the steps of one run, whose outliers come from the machine."""
    if len(values) < 2:
        return Measured(values[0], 0.0, "none", 1)
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return Measured(median(values), (upper - lower) / 2, "steps", len(values))


def lower(a: Measured, b: Measured) -> Verdict:
    """Whether a < b; undecided while they differ by no more than twice the spread of their difference.

        |a − b| ≤ 2 · √(spread_a² + spread_b²)   →   undecided

    If neither was repeated, the spread is unknown, and the verdict is undecided as well.

    >>> lower(Measured(1, 0.1, "seeds", 3), Measured(2, 0.1, "seeds", 3))
    'holds'
    >>> lower(Measured(1, 0.4, "seeds", 3), Measured(2, 0.4, "seeds", 3))
    'undecided'
    """
    if a.basis == b.basis == "none" or abs(a.value - b.value) <= SPREADS * math.hypot(a.spread, b.spread):
        return "undecided"
    return "holds" if a.value < b.value else "fails"


def higher(a: Measured, b: Measured) -> Verdict:
    """Whether a > b, by the same rule."""
    return lower(b, a)
