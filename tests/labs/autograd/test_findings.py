import pytest
from outcomes import STEADY, assert_complete, assert_says, cases_of, rounds

from shoal.report.findings import inside_run
from shoal.report.paired import by_rounds
from shoal_labs.autograd import findings


def pair(first, second, noise=1.0):
    """Two things that took turns; noise falls on the second only."""
    return by_rounds(
        rounds(first), [each * extra for each, extra in zip(rounds(second), wobble(noise), strict=True)]
    )


def wobble(noise):
    return [1 + noise * 0.01 * (-1) ** number for number in range(len(STEADY))]


FASTER, SLOWER, EQUAL = pair(1.0, 2.0), pair(2.0, 1.0), pair(1.0, 1.0)
RATIO = inside_run([0.5, 0.6, 0.7])
RATIOS = {
    "holds": [(FASTER, RATIO)],
    "fails": [(SLOWER, RATIO)],
    "undecided": [(EQUAL, RATIO), (by_rounds([1.0] * 3, [2.0] * 3), RATIO)],
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
        "holds": [(FASTER,)],
        "fails": [(SLOWER,)],
        "undecided": [(EQUAL,)],
    },
    findings.latency: RATIOS,
    findings.pays: {
        "holds": [(rounds(50.0), pair(2.0, 1.0))],
        "fails": [(rounds(50.0), pair(1.0, 2.0)), (rounds(500.0), pair(2.0, 1.0))],
        "undecided": [(rounds(95.0), pair(2.0, 1.0, noise=9)), ([50.0], pair(2.0, 1.0))],
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
        "holds": [(SLOWER, RATIO, 100)],
        "fails": [(FASTER, RATIO, 100)],
        "undecided": [(EQUAL, RATIO, 100)],
    },
    findings.chain_order: with_last(RATIOS, 300),
    findings.chain_grows: {
        "holds": [(FASTER, 10, 300)],
        "fails": [(SLOWER, 10, 300)],
        "undecided": [(EQUAL, 10, 300)],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.autograd", lang)


def test_every_finding_has_all_its_outcomes_and_an_explanation_for_each():
    assert_complete(OUTCOMES, "shoal_labs.autograd")


def test_a_compilation_that_saves_nothing_is_never_paid_for():
    assert findings.pays(rounds(50.0), pair(1.0, 2.0)).numbers["steps"] == "∞"
    assert findings.pays(rounds(50.0), pair(4.0, 2.0, noise=0)).numbers["steps"] == "25"
