"""The interval of a mean of few numbers, by Student's t."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev

LEVEL = 0.95
"""Confidence of an interval."""


@dataclass(frozen=True)
class Interval:
    """A mean, and half of its interval.

    >>> f"{Interval(0.5, 0.01, 3):.2f}", f"{Interval(0.5, None, 1):.2f}"
    ('0.50 ± 0.01', '0.50')
    """

    mean: float
    half: float | None
    """None for a single number, which does not say how much it scatters."""
    count: int

    def __format__(self, spec: str) -> str:
        mean = format(self.mean, spec)
        return mean if self.half is None else f"{mean} ± {format(self.half, spec.lstrip('+'))}"

    def scaled(self, factor: float) -> "Interval":
        """The same number in another unit."""
        return Interval(self.mean * factor, None if self.half is None else self.half * factor, self.count)

    @property
    def holds_zero(self) -> bool:
        """Whether zero lies inside; also where the numbers do not say how much they scatter: one, or all equal."""
        return not self.half or abs(self.mean) <= self.half


def interval_of(values: Sequence[float]) -> Interval:
    """The mean of some numbers with its 95 % interval.

    >>> f"{interval_of([1.0, 2.0, 3.0]):.2f}"
    '2.00 ± 2.48'
    """
    count = len(values)
    half = student_t(LEVEL, count - 1) * stdev(values) / math.sqrt(count) if count > 1 else None
    return Interval(fmean(values), half, count)


@cache
def student_t(level: float, degrees: int) -> float:
    """The t that a variable of Student's distribution exceeds in neither direction with this probability.

    With t = √degrees · tan θ, the probability is a finite sum in sin θ and cos θ (Abramowitz and Stegun 1964, 26.7.3
    and 26.7.4), and it grows with θ: θ is found by bisection.

    >>> [round(student_t(0.95, degrees), 3) for degrees in (1, 2, 4, 30)]
    [12.706, 4.303, 2.776, 2.042]
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """The probability of |t| ≤ √degrees · tan(angle)."""
    is_odd = degrees % 2
    term, total = math.cos(angle) ** is_odd, 0.0
    for power in range(is_odd, degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if is_odd else total
