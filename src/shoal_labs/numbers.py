"""Numbers and verdicts, as findings hold them and reports print them."""

import math

from shoal.kit.division import DataSet
from shoal.kit.findings import SPREADS, Paired, Verdict

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def scientific(value: float) -> str:
    """A small number in scientific notation; zero stays zero.

    >>> scientific(3.1e-7), scientific(0.0), scientific(math.inf)
    ('3.1 · 10⁻⁷', '0', '∞')
    """
    if value == 0 or math.isinf(value):
        return "∞" if value else "0"
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits} · 10{str(int(exponent)).translate(_RAISED)}"


def whether(condition: bool) -> Verdict:
    """The verdict on something that was counted or compared exactly, and has no spread."""
    return "holds" if condition else "fails"


def no_worse(lost: Paired, margin: float) -> Verdict:
    """Whether the second number is lower than the first by no more than a margin; the spread may leave that open.

    Where both are the same in every pair, nothing is lost.

    >>> from shoal.report.paired import by_seeds
    >>> steady, vague = (by_seeds([0.94] * 6, [0.93 + noise * (-1) ** i for i in range(6)]) for noise in (0.001, 0.1))
    >>> no_worse(steady, margin=0.03), no_worse(vague, margin=0.03)
    ('holds', 'undecided')
    """
    if lost.is_same:
        return "holds"
    value, noise = lost.difference.value, SPREADS * lost.difference.spread
    if lost.difference.basis == "none" or value - noise <= margin < value + noise:
        return "undecided"
    return "holds" if value <= margin else "fails"


def sample_counts(data: DataSet) -> dict[str, int]:
    """Sizes of the training, validation and test part."""
    return {"train": len(data.train), "validation": len(data.validation or ()), "test": len(data.test)}
