import random

import pytest
from outcomes import assert_complete, assert_says, cases_of, rounds

from shoal_labs.optimise.straggler import claims

LOW, NEAR, HIGH = rounds(1000.0), rounds(1050.0, noise=0.5), rounds(2000.0)
FASTER = {
    "holds": [(HIGH, LOW)],
    "fails": [(LOW, LOW), (NEAR, LOW)],
    "undecided": [(rounds(1100.0, noise=-1), LOW), (HIGH[:3], LOW[:3])],
}

OUTCOMES = {
    claims.slowest_sets_the_pace: {
        "holds": [(LOW, HIGH)],
        "fails": [(HIGH, HIGH)],
        "undecided": [(LOW, rounds(1100.0, noise=-1))],
    },
    claims.asp_is_faster: FASTER,
    claims.asp_reaches_the_sum: {
        "holds": [(rounds(1900.0), HIGH)],
        "fails": [(LOW, HIGH)],
        "undecided": [(rounds(1600.0, noise=-1), HIGH)],
    },
    claims.backup_is_faster: FASTER,
    claims.balanced_is_faster: FASTER,
    claims.ssp_waits_for_a_constant_straggler: FASTER,
    claims.ssp_absorbs_passing_delays: FASTER,
    claims.ssp_keeps_its_bound: {"holds": [(0, 300, 3)], "fails": [(1, 300, 3), (0, 0, 3)]},
    claims.slow_worker_is_stalest: {
        "holds": [((5, 6, 6, 7), (1, 2, 1, 2))],
        "fails": [((1, 1, 1, 1, 1), (4, 4, 5, 5, 4))],
        "undecided": [((2, 2, 2, 2), (2, 2, 2, 2))],
    },
    claims.asp_learns_sooner: {
        "holds": [(rounds(2.0), rounds(5.0), 0.85)],
        "fails": [(rounds(5.0), rounds(2.0), 0.85)],
        "undecided": [
            (rounds(2.0), rounds(2.0, noise=-9), 0.85),
            ([2.0], [5.0], 0.85),
            ([None, 2.0, 2.1, 2.2], [5.0, 5.1, 5.2, 5.3], 0.85),
        ],
    },
}
FASTER_CLAIMS = [claim for claim, outcomes in OUTCOMES.items() if outcomes is FASTER]


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.optimise", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal_labs.optimise", claims)


@pytest.mark.parametrize("claim", FASTER_CLAIMS)
def test_two_ways_that_are_equally_fast_never_come_out_as_faster(claim):
    draw = random.Random(0)
    for _ in range(300):
        one, other = ([draw.gauss(1000.0, 30.0) for _ in range(4)] for _ in range(2))
        assert claim(one, other).verdict != "holds"
