from types import SimpleNamespace

import pytest

from shoal.report.findings import Measured
from shoal.report.paired import by_seeds
from shoal_labs.lab3 import claims
from shoal_labs.words import load_words

BY_NAME = {claim.name: claim for claim in claims.CLAIMS}
GOOD, ALIKE, BAD = [0.94, 0.945, 0.935, 0.94], [0.93, 0.935, 0.925, 0.93], [0.8, 0.805, 0.795, 0.8]
VAGUE, SLIGHTLY_WORSE = [0.95, 0.85, 0.99, 0.8], [0.938, 0.946, 0.932, 0.941]


@pytest.mark.parametrize(
    ("reference", "other", "verdict"),
    [
        (GOOD, ALIKE, "holds"),
        (BAD, GOOD, "holds"),
        (GOOD, BAD, "fails"),
        (GOOD, VAGUE, "undecided"),
        (GOOD[:2], ALIKE[:2], "undecided"),
    ],
)
def test_a_loss_within_the_margin_is_none(reference, other, verdict):
    for name in ("random_no_worse", "sampling_no_worse", "label_no_worse", "dirichlet_no_worse"):
        assert BY_NAME[name].verdict(by_seeds(reference, other)) == verdict


@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [(ALIKE, "holds"), (SLIGHTLY_WORSE, "fails"), (VAGUE, "undecided"), ([1.0] * 4, "fails")],
)
def test_a_loss_that_is_certainly_within_the_margin_costs_nothing(wrong, verdict):
    assert claims.costs(by_seeds(GOOD, wrong), claims.MARGIN) == verdict


def seeing(coverage, spread=0.01):
    """Measurements of a wrong sampler among two and four workers, which by formula sees 50 and 25 %."""
    own = {
        ("range", workers): SimpleNamespace(
            first_coverage=Measured(part, spread, "seeds", 3), predicted=1 / workers
        )
        for workers, part in coverage.items()
    }
    return SimpleNamespace(plan=SimpleNamespace(workers=(2, 4), most=4), own=own)


@pytest.mark.parametrize(("coverage", "verdict"), [({2: 0.5, 4: 0.26}, "holds"), ({2: 0.5, 4: 0.9}, "fails")])
def test_a_coverage_is_the_formulas_or_not(coverage, verdict):
    assert BY_NAME["range_covers"].judge(seeing(coverage)).verdict == verdict


@pytest.mark.parametrize(
    ("claim", "holds", "fails"),
    [
        ("global_equals_one", {"worst": 2e-7}, {"worst": 1e-2}),
        ("order_decides", {"worst": 0.0}, {"worst": 0.1}),
        ("partitions_cover_once", {"right": 8, "partitions": 8}, {"right": 7, "partitions": 8}),
        ("wrong_is_refused", {"refused": 2, "samplers": 2}, {"refused": 1, "samplers": 2}),
    ],
)
def test_what_is_counted_holds_or_fails(claim, holds, fails):
    assert (BY_NAME[claim].verdict(holds), BY_NAME[claim].verdict(fails)) == ("holds", "fails")


def steps(one_core, several, communication):
    """Two workers on two cores."""

    def pace(rounds):
        step_ms = Measured(64 * rounds[0], 0.0, "none", 1)
        return SimpleNamespace(rounds_ms=rounds, step_ms=step_ms, communication=communication)

    plan = SimpleNamespace(fitting=2, gpus=0, cores=2)
    return SimpleNamespace(plan=plan, paces={2: {"one-core": pace(one_core), "global": pace(several)}})


STEADY = [1.0, 1.01, 0.99, 1.02]


@pytest.mark.parametrize(
    ("several", "communication", "verdict"),
    [
        ([0.75 * each + 0.001 * n for n, each in enumerate(STEADY)], 0.3, "holds"),
        ([0.75 * each + 0.001 * n for n, each in enumerate(STEADY)], 0.1, "fails"),
        ([0.5 * each for each in (1.1, 0.9, 1.2, 0.8)], 0.3, "undecided"),
    ],
)
def test_what_is_missing_to_the_ideal_is_communication_or_not(several, communication, verdict):
    assert claims.communication_limits(steps(STEADY, several, communication)).verdict == verdict


@pytest.mark.parametrize(
    ("lang", "shown"), [("en", "W = 2: 50.0 % (50.0 %), W = 4:"), ("zh", "W = 2：50.0 %（50.0 %）、W = 4：")]
)
def test_coverage_by_number_of_workers_has_the_punctuation_of_the_language(lang, shown):
    found = BY_NAME["range_covers"].judge(seeing({2: 0.5, 4: 0.26}, spread=0.0))
    assert shown in load_words("shoal_labs.lab3", lang).shown(found.numbers["measured"])
