import pytest
from outcomes import assert_complete, assert_says, cases_of

from shoal.labs.optimise.pruning import claims
from shoal.report.findings import Measured


def ratio(value, spread=0.01):
    return Measured(value, spread, "steps", 12)


HIGH, LOW, MIXED = (0.95, 0.96), (0.80, 0.82), (0.90, 0.99)

OUTCOMES = {
    claims.accuracy_survives: {
        "holds": [(HIGH, HIGH, 0.8), (LOW, HIGH, 0.8)],
        "fails": [(HIGH, LOW, 0.8)],
        "undecided": [(HIGH, MIXED, 0.8), ((0.9,), (0.9,), 0.8)],
    },
    claims.zeros_are_not_faster: {
        "holds": [(ratio(1.0), 0.8)],
        "fails": [(ratio(1.5), 0.8)],
        "undecided": [(ratio(1.1), 0.8), (ratio(1.0, 0.2), 0.8)],
    },
    claims.channels_are_faster: {
        "holds": [(ratio(1.5), 0.5)],
        "fails": [(ratio(1.0), 0.5)],
        "undecided": [(ratio(1.15, 0.2), 0.5)],
    },
    claims.tuning_recovers: {
        "holds": [(LOW, HIGH, 0.5), ((0.2, 0.8), HIGH, 0.5)],
        "fails": [(HIGH, HIGH, 0.5)],
        "undecided": [(MIXED, HIGH, 0.5), ((0.2,), (0.9,), 0.5)],
    },
    claims.too_much_costs: {
        "holds": [(HIGH, LOW, 0.75)],
        "fails": [(LOW, HIGH, 0.75)],
        "undecided": [(HIGH, HIGH, 0.75), (HIGH, MIXED, 0.75)],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal.labs.optimise", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal.labs.optimise", claims)
