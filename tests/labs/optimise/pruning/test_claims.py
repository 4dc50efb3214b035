import pytest
from outcomes import assert_complete, assert_says, cases_of, rounds

from shoal_labs.optimise.pruning import claims

HIGH, LOW = (0.950, 0.952, 0.949, 0.951, 0.950), (0.80, 0.82, 0.81, 0.80, 0.81)
MIXED, OTHER = (0.90, 0.99, 0.80, 0.97, 0.95), (0.951, 0.951, 0.950, 0.950, 0.951)
TWO = ((0.9, 0.91), (0.5, 0.51), 0.8)

OUTCOMES = {
    claims.accuracy_survives: {
        "holds": [(HIGH, OTHER, 0.8), (LOW, HIGH, 0.8), (HIGH, HIGH, 0.8)],
        "fails": [(HIGH, LOW, 0.8)],
        "undecided": [(HIGH, MIXED, 0.8), ((0.9,), (0.9,), 0.8), TWO],
    },
    claims.zeros_are_not_faster: {
        "holds": [(rounds(1.0), rounds(1.0, noise=0.5), 0.8)],
        "fails": [(rounds(1.5), rounds(1.0), 0.8)],
        "undecided": [(rounds(1.1), rounds(1.0, noise=-1), 0.8), ([1.0] * 3, [2.0] * 3, 0.8)],
    },
    claims.channels_are_faster: {
        "holds": [(rounds(1.5), rounds(1.0), 0.5)],
        "fails": [(rounds(1.0), rounds(1.0, noise=0.5), 0.5)],
        "undecided": [(rounds(1.15), rounds(1.0, noise=-2), 0.5)],
    },
    claims.tuning_recovers: {
        "holds": [(LOW, HIGH, 0.5), ((0.2, 0.8, 0.5, 0.6, 0.7), HIGH, 0.5)],
        "fails": [(HIGH, OTHER, 0.5)],
        "undecided": [(MIXED, HIGH, 0.5), ((0.2,), (0.9,), 0.5), TWO],
    },
    claims.too_much_costs: {
        "holds": [(HIGH, LOW, 0.75)],
        "fails": [(LOW, HIGH, 0.75)],
        "undecided": [(HIGH, HIGH, 0.75), (HIGH, MIXED, 0.75), TWO],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.optimise", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal_labs.optimise", claims)
