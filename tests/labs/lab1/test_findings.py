import math

import pytest
from outcomes import OUTCOMES_OF_A_COMPARISON, assert_complete, assert_says, cases_of

from shoal.report.findings import Measured
from shoal.report.paired import by_seeds
from shoal_labs.lab1 import findings
from shoal_labs.lab1.sweep import Sweep, Trial


def num(value):
    return Measured(value, 0.1, "seeds", 3)


LOW, HIGH = num(1.0), num(5.0)
LOWER, HIGHER, SAME = (by_seeds(*each) for each in OUTCOMES_OF_A_COMPARISON)


def swept(training):
    trials = [Trial(10.0**-i, 1.0 if i < training else math.inf) for i in range(6)]
    return Sweep("adam", tuple(trials), 0)


OUTCOMES = {
    findings.deterministic: {"holds": [(1e-7, LOW)], "fails": [(0.5, LOW), (1e-7, num(1e-9))]},
    findings.smooth: {"holds": [(LOWER,)], "fails": [(HIGHER,)], "undecided": [(SAME,)]},
    findings.noise_grows: {"holds": [(HIGHER,)], "fails": [(LOWER,)], "undecided": [(SAME,)]},
    findings.per_step: {"holds": [(LOWER, 60)], "fails": [(HIGHER, 60)], "undecided": [(SAME, 60)]},
    findings.per_sample: {"holds": [(HIGHER, 60)], "fails": [(LOWER, 60)], "undecided": [(SAME, 60)]},
    findings.per_second: {"holds": [(HIGHER, 0.6)], "fails": [(LOWER, 0.6)], "undecided": [(SAME, 0.6)]},
    findings.accuracy: {"holds": [(LOWER, 9, 3)], "fails": [(HIGHER, 9, 3)], "undecided": [(SAME, 9, 3)]},
    findings.adaptive: {"holds": [(LOWER, 60)], "fails": [(HIGHER, 60)], "undecided": [(SAME, 60)]},
    findings.sensitivity: {
        "holds": [(swept(5), swept(2))],
        "fails": [(swept(1), swept(4))],
        "undecided": [(swept(3), swept(3)), (swept(4), swept(3))],
    },
    findings.step_time: {
        "holds": [(HIGHER, HIGH, 64)],
        "fails": [(LOWER, HIGH, 64)],
        "undecided": [(SAME, HIGH, 64)],
    },
    findings.throughput: {"holds": [(HIGHER,)], "fails": [(LOWER,)], "undecided": [(SAME,)]},
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.lab1", lang)


def test_every_finding_has_all_its_outcomes_and_an_explanation_for_each():
    assert_complete(OUTCOMES, "shoal_labs.lab1")
