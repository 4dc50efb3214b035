"""The published formulas of the schedules: bubble fraction and peak live activations, to hold against the timeline.

p stages, m micro-batches, stage s from 0. All stages take the same times F, B = I + W, and messages take none.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shoal.strategies.pipeline.timing import UNIT_TIMES, StageTimes


@dataclass(frozen=True)
class Formula:
    """The published formulas of one schedule."""

    bubble: str
    """The fraction of all stages' time in which they wait."""
    bubble_of: Callable[[int, int, StageTimes], float]
    """The same for p, m and the times."""
    peak_live: str
    """The largest number of micro-batches whose activations stage s holds at once."""
    peak_live_of: Callable[[int, int, int], int]
    """The same for p, m and s."""
    where: str = ""
    """What a letter in `bubble` stands for."""
    exact: str = ""
    """When the formula of the bubble is exact; always, if empty."""
    is_exact: Callable[[int, int], bool] = lambda p, m: True


def _flushed_bubble(p: int, m: int, times: StageTimes) -> float:
    return (p - 1) / (m + p - 1)


def _zero_bubble_bubble(p: int, m: int, times: StageTimes) -> float:
    forward, half, weight = times.forward, times.backward_input, times.backward_weight
    bubble = (p - 1) * (forward + half - weight)
    return bubble / (m * (forward + half + weight) + bubble)


_ONE_F_ONE_B = Formula(
    bubble="(p − 1) / (m + p − 1)",
    bubble_of=_flushed_bubble,
    peak_live="min(p − s, m)",
    peak_live_of=lambda p, m, s: min(p - s, m),
)

FORMULAS: dict[str, Formula] = {
    "sequential": Formula(
        bubble="(p − 1) / p",
        bubble_of=lambda p, m, times: (p - 1) / p,
        peak_live="1",
        peak_live_of=lambda p, m, s: 1,
    ),
    "gpipe": Formula(
        bubble="(p − 1) / (m + p − 1)",
        bubble_of=_flushed_bubble,
        peak_live="m",
        peak_live_of=lambda p, m, s: m,
    ),
    "1f1b": _ONE_F_ONE_B,
    "zero-bubble": Formula(
        bubble="b / (m(F + I + W) + b)",
        where="b = (p − 1)(F + I − W)",
        bubble_of=_zero_bubble_bubble,
        peak_live="min(p, m)",
        peak_live_of=lambda p, m, s: min(p, m),
        exact="m ≥ p",
        is_exact=lambda p, m: m >= p,
    ),
    "async": _ONE_F_ONE_B,
}
"""The formulas by the schedule's name."""


def bubble(name: str, stages: int, microbatches: int, times: StageTimes = UNIT_TIMES) -> float:
    """The bubble fraction of a schedule by its formula.

    >>> round(bubble("1f1b", stages=4, microbatches=8), 3), round(bubble("zero-bubble", 4, 8), 3)
    (0.273, 0.111)
    """
    return FORMULAS[name].bubble_of(stages, microbatches, times)


def peak_live(name: str, stages: int, microbatches: int) -> tuple[int, ...]:
    """The peak number of live activations on each stage by the formula.

    >>> peak_live("1f1b", stages=4, microbatches=3)
    (3, 3, 2, 1)
    """
    return tuple(FORMULAS[name].peak_live_of(stages, microbatches, stage) for stage in range(stages))
