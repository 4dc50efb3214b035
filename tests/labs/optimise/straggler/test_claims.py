import random

import pytest
from outcomes import assert_complete, assert_says, cases_of

from shoal.labs.optimise.straggler import claims
from shoal.report.findings import Measured, inside_run


def num(value, spread=10.0):
    return Measured(value, spread, "steps", 4)


LOW, NEAR, HIGH = num(1000.0), num(1050.0), num(2000.0)
FASTER = {"holds": [(HIGH, LOW)], "fails": [(LOW, LOW), (NEAR, LOW)], "undecided": [(num(1100.0), LOW)]}

OUTCOMES = {
    claims.slowest_sets_the_pace: {
        "holds": [(LOW, HIGH)],
        "fails": [(HIGH, HIGH)],
        "undecided": [(LOW, num(1100.0))],
    },
    claims.asp_is_faster: FASTER,
    claims.asp_reaches_the_sum: {
        "holds": [(num(1900.0), HIGH)],
        "fails": [(LOW, HIGH)],
        "undecided": [(num(1600.0), HIGH)],
    },
    claims.backup_is_faster: FASTER,
    claims.balanced_is_faster: FASTER,
    claims.ssp_waits_for_a_constant_straggler: FASTER,
    claims.ssp_absorbs_passing_delays: FASTER,
    claims.ssp_keeps_its_bound: {"holds": [(0, 300, 3)], "fails": [(1, 300, 3), (0, 0, 3)]},
    claims.slow_worker_is_stalest: {
        "holds": [((5, 6, 6, 7), (1, 1, 2, 2))],
        "fails": [((1, 1, 1, 1), (4, 4, 5, 5))],
        "undecided": [((2, 2, 2, 2), (2, 2, 2, 2))],
    },
    claims.asp_learns_sooner: {
        "holds": [(num(2.0, 0.2), num(5.0, 0.4), 0.85)],
        "fails": [(num(5.0, 0.2), num(2.0, 0.4), 0.85)],
        "undecided": [(num(2.0, 0.5), num(2.5, 0.5), 0.85), (None, num(2.0), 0.85)],
    },
}
FASTER_CLAIMS = [claim for claim, outcomes in OUTCOMES.items() if outcomes is FASTER]


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal.labs.optimise", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal.labs.optimise", claims)


@pytest.mark.parametrize("claim", FASTER_CLAIMS)
def test_two_ways_that_are_equally_fast_never_come_out_as_faster(claim):
    draw = random.Random(0)
    for _ in range(300):
        one, other = ([draw.gauss(1000.0, 30.0) for _ in range(4)] for _ in range(2))
        assert claim(inside_run(one), inside_run(other)).verdict != "holds"
