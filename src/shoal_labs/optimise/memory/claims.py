"""What the part claims: each claim a function of numbers alone, so that a test can feed it either outcome."""

from collections.abc import Mapping, Sequence

from shoal.report.findings import Finding
from shoal.report.paired import by_rounds, first_higher, first_lower

MARGIN = 1.1
"""How many times as much memory or time counts as a difference."""
PERCENT = 100 * (MARGIN - 1)


def recomputing_saves_memory(plain: Sequence[float], recomputed: Sequence[float]) -> Finding:
    """With all blocks recomputed, a step needs less memory."""
    return _saves("recomputing_saves_memory", plain, recomputed)


def recomputing_costs_time(plain: Sequence[float], recomputed: Sequence[float]) -> Finding:
    """With all blocks recomputed, a step takes longer."""
    return _slower("recomputing_costs_time", plain, recomputed, {})


def accumulation_saves_memory(plain: Sequence[float], parts: Sequence[float]) -> Finding:
    """A batch in small parts needs less memory."""
    return _saves("accumulation_saves_memory", plain, parts)


def least_memory_is_slower(plain: Sequence[float], least: Sequence[float], flags: str) -> Finding:
    """The technique with the least memory takes longer than the plain run."""
    return _slower("least_memory_is_slower", plain, least, {"flags": flags})


def _slower(
    claim: str, plain: Sequence[float], other: Sequence[float], numbers: Mapping[str, str]
) -> Finding:
    """Times of a step, round by round."""
    margin = by_rounds(other, [MARGIN * each for each in plain])
    ratio = by_rounds(other, plain).ratio
    return Finding(claim, {"ratio": ratio, "percent": PERCENT, **numbers}, first_higher(margin), margin.pairs)


def _saves(claim: str, plain: Sequence[float], less: Sequence[float]) -> Finding:
    """Peaks of memory, round by round."""
    peaks = by_rounds(less, plain)
    numbers = {"plain": peaks.second, "less": peaks.first, "part": 100 * peaks.ratio, "percent": PERCENT}
    return Finding(claim, numbers, first_lower(by_rounds([MARGIN * each for each in less], plain)))
