import pytest
from outcomes import OUTCOMES_OF_A_COMPARISON, assert_complete, assert_says, cases_of

from shoal.report.findings import Measured
from shoal.report.paired import by_seeds
from shoal_labs.lab3 import claims
from shoal_labs.page.analysis import judgement
from shoal_labs.words import load_words


def num(value, spread=0.1):
    return Measured(value, spread, "seeds", 3)


LOWER, HIGHER, SAME = (by_seeds(*each) for each in OUTCOMES_OF_A_COMPARISON)
GOOD, ALIKE, BAD = [0.94, 0.945, 0.935, 0.94], [0.93, 0.935, 0.925, 0.93], [0.8, 0.805, 0.795, 0.8]
VAGUE = [0.95, 0.85, 0.99, 0.8]

NO_WORSE = {
    "holds": [(by_seeds(GOOD, ALIKE), 4), (by_seeds(BAD, GOOD), 4)],
    "fails": [(by_seeds(GOOD, BAD), 4)],
    "undecided": [(by_seeds(GOOD, VAGUE), 4), (by_seeds(GOOD[:2], ALIKE[:2]), 4)],
}
COSTS = {"holds": [(HIGHER, 4)], "fails": [(LOWER, 4)], "undecided": [(SAME, 4)]}
SLIGHTLY_WORSE = [0.938, 0.946, 0.932, 0.941]
COSTS_MORE_THAN_A_MARGIN = {
    "holds": [(HIGHER, 4), (by_seeds(GOOD, ALIKE), 4)],
    "fails": [(LOWER, 4), (by_seeds(GOOD, SLIGHTLY_WORSE), 4)],
    "undecided": [(SAME, 4), (by_seeds(GOOD, VAGUE), 4), (by_seeds(GOOD[:2], BAD[:2]), 4)],
}
FASTER = {"holds": [(HIGHER, 2)], "fails": [(LOWER, 2)], "undecided": [(SAME, 2)]}
FORMULA = {
    "holds": [({2: num(0.5, 0.0), 4: num(0.26, 0.01)}, {2: 0.5, 4: 0.25})],
    "fails": [({2: num(0.5, 0.0), 4: num(0.9, 0.01)}, {2: 0.5, 4: 0.25})],
}
OUTCOMES = {
    claims.global_equals_one: {
        "holds": [({2: 1e-7, 4: 2e-7}, 20)],
        "fails": [({2: 1e-7, 4: 1e-2}, 20)],
    },
    claims.order_decides: {
        "holds": [({"random": 1e-7, "label": 0.0}, 4, 20)],
        "fails": [({"random": 1e-7, "label": 0.1}, 4, 20)],
    },
    claims.partitions_cover_once: {
        "holds": [({"random": True, "label": True},)],
        "fails": [({"random": True, "label": False},)],
    },
    claims.sampling_covers: {"holds": [(num(0.63, 0.01), 0.632)], "fails": [(num(1.0, 0.0), 0.632)]},
    claims.range_covers: FORMULA,
    claims.rank_seed_covers: FORMULA,
    claims.random_no_worse: NO_WORSE,
    claims.sampling_no_worse: NO_WORSE,
    claims.label_no_worse: NO_WORSE,
    claims.dirichlet_no_worse: NO_WORSE,
    claims.seldom_label_costs: COSTS,
    claims.uneven_parts_slow: {
        "holds": [(HIGHER, 0.7, 2)],
        "fails": [(LOWER, 0.7, 2)],
        "undecided": [(SAME, 0.7, 2)],
    },
    claims.range_costs: COSTS_MORE_THAN_A_MARGIN,
    claims.rank_seed_costs: COSTS_MORE_THAN_A_MARGIN,
    claims.loss_hides_it: COSTS,
    claims.wrong_is_refused: {
        "holds": [({"range": "no", "rank-seed": "no"},)],
        "fails": [({"range": "no", "rank-seed": ""},)],
    },
    claims.faster_than_one_core: FASTER,
    claims.faster_than_all_cores: FASTER,
    claims.faster_than_one_process: {
        verdict: [(*args, 1) for args in cases] for verdict, cases in FASTER.items()
    },
    claims.speed_parts_help: FASTER,
    claims.crowded_is_slower: {
        "holds": [(HIGHER, num(1.0), num(2.0), (2, 4, 2))],
        "fails": [(LOWER, num(1.0), num(2.0), (2, 4, 2))],
        "undecided": [(SAME, num(1.0), num(2.0), (2, 4, 2))],
    },
    claims.communication_limits: {
        "holds": [(num(2.0), HIGHER, 0.6, 2)],
        "fails": [(num(2.0), HIGHER, 0.4, 2)],
        "undecided": [(num(2.0), SAME, 0.1, 2), (num(2.0), LOWER, 0.1, 2)],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.lab3", lang)


def test_every_finding_has_all_its_outcomes_and_an_explanation_for_each():
    assert_complete(OUTCOMES, "shoal_labs.lab3")


@pytest.mark.parametrize(
    ("lang", "shown"), [("en", "W = 2: 75.0 % (75.0 %), W = 4:"), ("zh", "W = 2：75.0 %（75.0 %）、W = 4：")]
)
def test_coverage_by_number_of_workers_has_the_punctuation_of_the_language(lang, shown):
    measured = {workers: Measured(0.75, 0.0, "none", 1) for workers in (2, 4)}
    found = claims.rank_seed_covers(measured, {2: 0.75, 4: 0.68})
    assert shown in judgement(found, load_words("shoal_labs.lab3", lang)).numbers
