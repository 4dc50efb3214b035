"""Numbers and verdicts, as findings hold them and reports print them."""

import math

from shoal.data.dataset import DataSet
from shoal.report.findings import Verdict

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


def sample_counts(data: DataSet) -> dict[str, int]:
    """Sizes of the training, validation and test part."""
    return {"train": len(data.train), "validation": len(data.validation or ()), "test": len(data.test)}
