"""Series of numbers whose comparison comes out either way."""

ONES, TWOS = [1.0, 1.1, 0.9, 1.05, 0.95], [2.0, 2.1, 1.9, 2.05, 1.95]
MIXED = [1.1, 0.95, 1.0, 0.9, 1.2]
STEADY = [0.96, 1.01, 0.99, 1.04, 1.02, 0.98, 1.0, 1.03, 0.97, 1.05, 0.95]
"""Rounds of something that takes about 1."""


def rounds(value, noise=1.0):
    """Rounds about a value; with more noise they scatter more."""
    return [value * (1 + noise * (each - 1)) for each in STEADY]


OUTCOMES_OF_A_COMPARISON = ((ONES, TWOS), (TWOS, ONES), (ONES, MIXED))
"""Series for a paired comparison in which the first is lower, is higher, cannot be distinguished."""
