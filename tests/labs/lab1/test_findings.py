import math

import pytest
from outcomes import assert_complete, assert_says, cases_of

from shoal.labs.lab1 import findings
from shoal.labs.lab1.sweep import Sweep, Trial
from shoal.report.findings import Measured


def num(value):
    return Measured(value, 0.1, "seeds", 3)


LOW, NEAR, HIGH = num(1.0), num(1.1), num(5.0)


def swept(training):
    trials = [Trial(10.0**-i, 1.0 if i < training else math.inf) for i in range(6)]
    return Sweep("adam", tuple(trials), 0)


OUTCOMES = {
    findings.deterministic: {"holds": [(1e-7, LOW)], "fails": [(0.5, LOW), (1e-7, num(1e-9))]},
    findings.smooth: {"holds": [(LOW, HIGH)], "fails": [(HIGH, LOW)], "undecided": [(LOW, NEAR)]},
    findings.noise_grows: {"holds": [(LOW, HIGH)], "fails": [(HIGH, LOW)], "undecided": [(LOW, NEAR)]},
    findings.per_step: {
        "holds": [(LOW, HIGH, 60)],
        "fails": [(HIGH, LOW, 60)],
        "undecided": [(LOW, NEAR, 60)],
    },
    findings.per_sample: {
        "holds": [(HIGH, LOW, 60)],
        "fails": [(LOW, HIGH, 60)],
        "undecided": [(LOW, NEAR, 60)],
    },
    findings.per_second: {
        "holds": [(HIGH, LOW, 0.6)],
        "fails": [(LOW, HIGH, 0.6)],
        "undecided": [(LOW, NEAR, 0.6)],
    },
    findings.accuracy: {
        "holds": [(LOW, HIGH, 9, 3)],
        "fails": [(HIGH, LOW, 9, 3)],
        "undecided": [(LOW, NEAR, 9, 3)],
    },
    findings.adaptive: {
        "holds": [(LOW, HIGH, 60)],
        "fails": [(HIGH, LOW, 60)],
        "undecided": [(LOW, NEAR, 60)],
    },
    findings.sensitivity: {
        "holds": [(swept(5), swept(2))],
        "fails": [(swept(1), swept(4))],
        "undecided": [(swept(3), swept(3)), (swept(4), swept(3))],
    },
    findings.step_time: {
        "holds": [(HIGH, LOW, HIGH)],
        "fails": [(LOW, HIGH, HIGH)],
        "undecided": [(LOW, NEAR, HIGH)],
    },
    findings.throughput: {"holds": [(HIGH, LOW)], "fails": [(LOW, HIGH)], "undecided": [(LOW, NEAR)]},
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal.labs.lab1", lang)


def test_every_finding_has_all_its_outcomes_and_an_explanation_for_each():
    assert_complete(OUTCOMES, "shoal.labs.lab1")
