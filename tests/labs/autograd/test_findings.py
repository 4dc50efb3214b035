import pytest
from outcomes import assert_complete, assert_says, cases_of

from shoal.labs.autograd import findings
from shoal.report.findings import Measured


def num(value):
    return Measured(value, 0.05, "steps", 9)


MS = num(3.0)
FASTER, EQUAL, SLOWER = num(0.5), num(1.05), num(2.0)
RATIOS = {
    "holds": [(MS, MS, FASTER)],
    "fails": [(MS, MS, SLOWER)],
    "undecided": [(MS, MS, EQUAL), (MS, MS, Measured(0.5, 0.0, "none", 1))],
}


def with_last(cases, last):
    return {verdict: [(*args, last) for args in rows] for verdict, rows in cases.items()}


def both(mlp, lenet):
    return {"mlp": mlp, "lenet": lenet}


OUTCOMES = {
    findings.by_hand: {"holds": [(0.0, 1e-9), (1e-7, 1e-9)], "fails": [(0.1, 1e-9), (0.0, 0.1)]},
    findings.same_gradients: {"holds": [(0.0, 1e-7)], "fails": [(0.0, 0.1), (0.1, 0.0)]},
    findings.branches: {"holds": [(True, True)], "fails": [(True, False), (False, True)]},
    findings.mlp_step: RATIOS,
    findings.lenet_step: RATIOS,
    findings.overhead: {
        "holds": [(FASTER, EQUAL)],
        "fails": [(EQUAL, FASTER)],
        "undecided": [(EQUAL, num(1.0))],
    },
    findings.latency: RATIOS,
    findings.pays: {
        "holds": [(num(50.0), num(1.0))],
        "fails": [(num(50.0), num(-1.0)), (num(500.0), num(1.0))],
        "undecided": [(num(50.0), Measured(1.0, 0.9, "steps", 9))],
    },
    findings.peak: {
        "holds": [(both(10, 10), both(9, 10))],
        "fails": [(both(10, 10), both(9, 11)), (both(10, 10), both(11, 9))],
    },
    findings.planning: {
        "holds": [(both(10, 10), both(4, 4))],
        "fails": [(both(10, 10), both(4, 5)), (both(10, 10), both(6, 4))],
    },
    findings.passes: {"holds": [((40, 20), (100, 90))], "fails": [((40, 36), (100, 50)), ((40, 40), (9, 9))]},
    findings.caching_saves: with_last(RATIOS, 16),
    findings.caching_costs: {
        "holds": [(MS, MS, SLOWER, 100)],
        "fails": [(MS, MS, FASTER, 100)],
        "undecided": [(MS, MS, EQUAL, 100)],
    },
    findings.chain_order: with_last(RATIOS, 300),
    findings.chain_grows: {
        "holds": [(SLOWER, FASTER, 10, 300)],
        "fails": [(FASTER, SLOWER, 10, 300)],
        "undecided": [(EQUAL, num(1.0), 10, 300)],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal.labs.autograd", lang)


def test_every_finding_has_all_its_outcomes_and_an_explanation_for_each():
    assert_complete(OUTCOMES, "shoal.labs.autograd")


def test_a_compilation_that_saves_nothing_is_never_paid_for():
    assert findings.pays(num(50.0), num(-1.0)).numbers["steps"] == "∞"
    assert findings.pays(num(50.0), num(2.0)).numbers["steps"] == "25"
