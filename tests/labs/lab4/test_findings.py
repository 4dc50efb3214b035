import pytest
from outcomes import assert_complete, assert_says, cases_of

from shoal.labs.lab4 import findings
from shoal.report.findings import Measured


def num(value, spread=0.1):
    return Measured(value, spread, "steps", 30)


LOW, NEAR, HIGH = num(1.0), num(1.1), num(5.0)
BUBBLES = {1: num(0.66, 0.01), 4: num(0.35, 0.02)}
IDEAL = {1: 0.66, 4: 0.33}

OUTCOMES = {
    findings.equals_one_machine: {
        "holds": [({"rpc": 1e-7, "1f1b": 0.0},)],
        "fails": [({"rpc": 1e-7, "1f1b": 1e-2},)],
    },
    findings.memory_is_divided: {
        "holds": [(1000, {"rpc": 900, "tensor": 400})],
        "fails": [(1000, {"rpc": 1000, "tensor": 400})],
    },
    findings.fewer_activations: {
        "holds": [((4, 4, 4), (3, 2, 1))],
        "fails": [((2, 2), (2, 2)), ((4, 4), (1, 5))],
    },
    findings.overlap_shortens: {
        "holds": [(HIGH, LOW, 2.0)],
        "fails": [(LOW, HIGH, 2.0)],
        "undecided": [(LOW, NEAR, 2.0), (LOW, LOW, 2.0)],
    },
    findings.zero_bubble_shortens: {
        "holds": [(HIGH, LOW, 1.2)],
        "fails": [(LOW, HIGH, 1.2)],
        "undecided": [(LOW, NEAR, 1.2), (LOW, LOW, 1.2)],
    },
    findings.microbatches_shorten_rpc: {
        "holds": [(HIGH, LOW, 4, (0.1, 3.0, 1.0))],
        "fails": [(LOW, HIGH, 4, (0.1, 3.0, 1.0))],
        "undecided": [(NEAR, LOW, 4, (0.1, 3.0, 1.0)), (LOW, LOW, 4, (0.0, 1.0))],
    },
    findings.bubble_falls: {
        "holds": [(num(0.66, 0.02), num(0.3, 0.02), (1, 8))],
        "fails": [(num(0.3, 0.02), num(0.66, 0.02), (1, 8))],
        "undecided": [(num(0.66, 0.3), num(0.3, 0.3), (1, 8)), (num(0.5, 0.01), num(0.5, 0.01), (1, 8))],
    },
    findings.bubble_as_formula: {
        "holds": [(BUBBLES, 3, IDEAL)],
        "fails": [({1: num(0.66, 0.01), 4: num(0.7, 0.02)}, 3, IDEAL)],
        "undecided": [({1: num(0.66, 0.01), 4: num(0.5, 0.2)}, 3, IDEAL)],
    },
    findings.balanced_cut_fastest: {
        "holds": [({"conv2": LOW, "fc1": HIGH}, {"conv2": 3.0, "fc1": 9.0})],
        "fails": [({"conv2": HIGH, "fc1": LOW}, {"conv2": 3.0, "fc1": 9.0})],
        "undecided": [({"conv2": LOW, "fc1": NEAR}, {"conv2": 3.0, "fc1": 9.0})],
    },
    findings.does_not_pay: {
        "holds": [(LOW, HIGH, "gpipe")],
        "fails": [(HIGH, LOW, "gpipe")],
        "undecided": [(LOW, NEAR, "gpipe")],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal.labs.lab4", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal.labs.lab4")


def test_the_slowest_stage_bounds_what_overlap_gains():
    even, uneven = findings.overlap_bound([1.0, 1.0], 10**6), findings.overlap_bound([0.96, 0.04], 10**6)
    assert even == pytest.approx(2.0, rel=1e-5)
    assert uneven == pytest.approx(1 / 0.96, rel=1e-5)  # lenet's convolutions: hardly anything to gain
