"""Numbers that scatter, paired comparisons, and the verdicts that follow from them. Without torch."""

from shoal.report.findings import (
    NOTHING,
    SPREADS,
    Finding,
    Measured,
    Number,
    Verdict,
    accuracy_over,
    higher,
    inside_run,
    lower,
    of_samples,
    over_seeds,
)
from shoal.report.paired import (
    FEWEST,
    STUDENT,
    Paired,
    by_rounds,
    by_seeds,
    first_higher,
    first_lower,
    typical,
)

__all__ = [
    "FEWEST",
    "NOTHING",
    "SPREADS",
    "STUDENT",
    "Finding",
    "Measured",
    "Number",
    "Paired",
    "Verdict",
    "accuracy_over",
    "by_rounds",
    "by_seeds",
    "first_higher",
    "first_lower",
    "higher",
    "inside_run",
    "lower",
    "of_samples",
    "over_seeds",
    "typical",
]
