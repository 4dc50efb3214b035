"""What the part claims: each claim a function of numbers alone, so that a test can feed it either outcome."""

from shoal.report.findings import Finding, Measured, higher, lower

MARGIN = 1.1
"""How many times as much memory or time counts as a difference."""
PERCENT = 100 * (MARGIN - 1)
BOUND = Measured(MARGIN, 0.0, "none", 1)


def recomputing_saves_memory(plain: Measured, recomputed: Measured) -> Finding:
    """With all blocks recomputed, a step needs less memory."""
    return _saves("recomputing_saves_memory", plain, recomputed)


def recomputing_costs_time(ratio: Measured) -> Finding:
    """With all blocks recomputed, a step takes longer."""
    return Finding("recomputing_costs_time", {"ratio": ratio, "percent": PERCENT}, higher(ratio, BOUND))


def accumulation_saves_memory(plain: Measured, parts: Measured) -> Finding:
    """A batch in small parts needs less memory."""
    return _saves("accumulation_saves_memory", plain, parts)


def least_memory_is_slower(ratio: Measured, flags: str) -> Finding:
    """The technique with the least memory takes longer than the plain run."""
    numbers = {"ratio": ratio, "flags": flags, "percent": PERCENT}
    return Finding("least_memory_is_slower", numbers, higher(ratio, BOUND))


def _saves(claim: str, plain: Measured, less: Measured) -> Finding:
    numbers = {"plain": plain, "less": less, "part": 100 * less.value / plain.value, "percent": PERCENT}
    return Finding(claim, numbers, lower(less.scaled(MARGIN), plain))
