import pytest
from outcomes import assert_complete, assert_says, cases_of

from shoal.labs.optimise.memory import claims
from shoal.report.findings import Measured


def num(value, spread=0.01):
    return Measured(value, spread, "steps", 3)


SAVES = {
    "holds": [(num(80.0), num(40.0))],
    "fails": [(num(80.0), num(80.0))],
    "undecided": [(num(88.0, 1.0), num(80.0, 1.0))],
}

OUTCOMES = {
    claims.recomputing_saves_memory: SAVES,
    claims.recomputing_costs_time: {
        "holds": [(num(1.3),)],
        "fails": [(num(1.0),)],
        "undecided": [(num(1.3, 0.2),), (Measured(1.3, 0.0, "none", 1),)],
    },
    claims.accumulation_saves_memory: SAVES,
    claims.least_memory_is_slower: {
        "holds": [(num(1.3), "--memory.checkpoint 1")],
        "fails": [(num(1.0), "--memory.checkpoint 1")],
        "undecided": [(num(1.1), "--memory.checkpoint 1")],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal.labs.optimise", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal.labs.optimise", claims)
