import pytest
from outcomes import assert_complete, assert_says, cases_of

from shoal.labs.lab3 import findings
from shoal.report.findings import Measured


def num(value, spread=0.1):
    return Measured(value, spread, "seeds", 3)


LOW, NEAR, HIGH = num(1.0), num(1.1), num(5.0)
GOOD, ALIKE, BAD, VAGUE = (num(*each) for each in ((0.94, 0.004), (0.93, 0.004), (0.8, 0.004), (0.9, 0.05)))

NO_WORSE = {"holds": [(GOOD, ALIKE, 4)], "fails": [(GOOD, BAD, 4)], "undecided": [(GOOD, VAGUE, 4)]}
COSTS = {"holds": [(GOOD, BAD, 4)], "fails": [(BAD, GOOD, 4)], "undecided": [(GOOD, VAGUE, 4)]}
FASTER = {"holds": [(HIGH, LOW, 2)], "fails": [(LOW, HIGH, 2)], "undecided": [(LOW, NEAR, 2)]}
FORMULA = {
    "holds": [({2: num(0.5, 0.0), 4: num(0.26, 0.01)}, {2: 0.5, 4: 0.25})],
    "fails": [({2: num(0.5, 0.0), 4: num(0.9, 0.01)}, {2: 0.5, 4: 0.25})],
}
OUTCOMES = {
    findings.global_equals_one: {
        "holds": [({2: 1e-7, 4: 2e-7}, 20)],
        "fails": [({2: 1e-7, 4: 1e-2}, 20)],
    },
    findings.order_decides: {
        "holds": [({"random": 1e-7, "label": 0.0}, 4, 20)],
        "fails": [({"random": 1e-7, "label": 0.1}, 4, 20)],
    },
    findings.partitions_cover_once: {
        "holds": [({"random": True, "label": True},)],
        "fails": [({"random": True, "label": False},)],
    },
    findings.sampling_covers: {"holds": [(num(0.63, 0.01), 0.632)], "fails": [(num(1.0, 0.0), 0.632)]},
    findings.range_covers: FORMULA,
    findings.rank_seed_covers: FORMULA,
    findings.random_no_worse: NO_WORSE,
    findings.sampling_no_worse: NO_WORSE,
    findings.label_no_worse: NO_WORSE,
    findings.dirichlet_no_worse: NO_WORSE,
    findings.seldom_label_costs: COSTS,
    findings.uneven_parts_slow: {
        "holds": [(LOW, HIGH, 0.7, 2)],
        "fails": [(HIGH, LOW, 0.7, 2)],
        "undecided": [(LOW, NEAR, 0.7, 2)],
    },
    findings.range_costs: COSTS,
    findings.rank_seed_costs: COSTS,
    findings.loss_hides_it: {
        "holds": [(HIGH, LOW, 4)],
        "fails": [(LOW, HIGH, 4)],
        "undecided": [(LOW, NEAR, 4)],
    },
    findings.wrong_is_refused: {
        "holds": [({"range": "no", "rank-seed": "no"},)],
        "fails": [({"range": "no", "rank-seed": ""},)],
    },
    findings.faster_than_one_core: FASTER,
    findings.faster_than_all_cores: FASTER,
    findings.speed_parts_help: FASTER,
    findings.crowded_is_slower: {
        "holds": [(LOW, HIGH, (2, 4, 2))],
        "fails": [(HIGH, LOW, (2, 4, 2))],
        "undecided": [(LOW, NEAR, (2, 4, 2))],
    },
    findings.communication_limits: {
        "holds": [(num(20.0), num(14.0), 3.0, 2)],
        "fails": [(num(20.0), num(14.0), 1.0, 2)],
        "undecided": [(num(20.0), num(10.1), 0.1, 2), (num(20.0), num(9.0), 0.1, 2)],
    },
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal.labs.lab3", lang)


def test_every_finding_has_all_its_outcomes_and_an_explanation_for_each():
    assert_complete(OUTCOMES, "shoal.labs.lab3")


def test_one_run_alone_shows_nothing_and_better_is_not_worse():
    once = Measured(0.9, 0.0, "none", 1)
    assert findings.no_worse(once, once, 0.03) == "undecided"
    assert findings.no_worse(BAD, GOOD, 0.03) == "holds"
