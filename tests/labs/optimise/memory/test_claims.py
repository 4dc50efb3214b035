import pytest
from outcomes import assert_complete, assert_says, cases_of, rounds

from shoal_labs.optimise.memory import claims

PLAIN = rounds(80.0)
SLOWER = {
    "holds": (PLAIN, rounds(110.0)),
    "fails": (PLAIN, rounds(80.0)),
    "undecided": (PLAIN, rounds(88.0, noise=-1)),
}
SAVES = {
    "holds": [(PLAIN, rounds(40.0))],
    "fails": [(PLAIN, rounds(80.0))],
    "undecided": [(rounds(88.0), rounds(80.0, noise=-1)), ([80.0] * 3, [40.0] * 3)],
}

OUTCOMES = {
    claims.recomputing_saves_memory: SAVES,
    claims.recomputing_costs_time: {
        **{verdict: [args] for verdict, args in SLOWER.items()},
        "undecided": [SLOWER["undecided"], ([1.0, 1.1, 1.0], [3.0, 3.1, 3.2])],  # three rounds decide nothing
    },
    claims.accumulation_saves_memory: SAVES,
    claims.least_memory_is_slower: {
        verdict: [(*args, "--memory.checkpoint 1")] for verdict, args in SLOWER.items()
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.optimise", lang)


def test_every_finding_has_its_words_and_every_explanation_its_case():
    assert_complete(OUTCOMES, "shoal_labs.optimise", claims)
