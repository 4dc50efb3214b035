from types import SimpleNamespace

import pytest

from shoal.report.findings import of_samples
from shoal_labs.claims import Bound
from shoal_labs.lab2.claims import CLAIMS, breaks_the_mean, tolerates
from shoal_labs.lab2.measure import Recorded
from shoal_labs.words import load_words

BOUNDS = {claim.name: claim for claim in CLAIMS if isinstance(claim, Bound)}
BY_NAME = {claim.name: claim for claim in CLAIMS}


@pytest.mark.parametrize(
    ("name", "compared", "rounding"),
    [
        ("sum_is_scaled_mean", "sum", "holds"),
        ("parameters_equal_gradients", "parameters", "holds"),
        ("adam_parameters_differ", "adam-parameters", "fails"),
        ("stages_equal", "stages", "holds"),
        ("balance_changes_nothing", "balanced", "holds"),
        ("exact_on_uneven", "uneven-exact", "holds"),
        ("exact_on_uneven", "uneven-weighted_mean", "holds"),
        ("mean_of_means_differs", "uneven-mean", "fails"),
    ],
)
def test_weights_are_equal_up_to_rounding(name, compared, rounding):
    plan = SimpleNamespace(workers=2, size=SimpleNamespace(equal_steps=4))
    others = {"uneven-exact": 0.0, "uneven-weighted_mean": 0.0}
    for difference, equal in ((1e-7, True), (0.1, False)):
        measured = SimpleNamespace(plan=plan, differences={**others, compared: difference})
        assert (BY_NAME[name].judge(measured).verdict == rounding) == equal


@pytest.mark.parametrize(
    ("sums", "verdict"),
    [({"a": (1e-8, True)}, "holds"), ({"a": (0.1, True)}, "fails"), ({"a": (0.0, False)}, "fails")],
)
def test_branches_leave_one_sum_and_the_same_bits_everywhere(sums, verdict):
    assert BY_NAME["same_sum"].judge(SimpleNamespace(sums=sums)).verdict == verdict


def recorded(ring=800, as_labelled=True):
    sent = {"by:ring": (ring, 800), "by:central": (800, 800), "all_reduce": (800, None)}
    records = {
        name: Recorded(frozenset(), as_labelled or name != "all_reduce", 1, *bytes_)
        for name, bytes_ in sent.items()
    }
    return SimpleNamespace(recorded=records, parameters=100)


def test_one_wrong_branch_makes_the_comparison_void():
    assert BY_NAME["labels"].judge(recorded()).verdict == "holds"
    assert BY_NAME["labels"].judge(recorded(as_labelled=False)).verdict == "fails"
    found = BY_NAME["bytes_sent"].judge(recorded())
    assert (found.verdict, found.numbers["ring"], found.numbers["algorithms"]) == ("holds", 2, 2)
    assert BY_NAME["bytes_sent"].judge(recorded(ring=804)).verdict == "fails"


def test_nan_has_to_be_stopped():
    assert BOUNDS["nan_is_stopped"].verdict({"stopped": True}) == "holds"
    assert BOUNDS["nan_is_stopped"].verdict({"stopped": False}) == "fails"


@pytest.mark.parametrize(
    ("clean", "faulty", "breaks", "tolerated"),
    [
        (0.9, 0.2, "holds", "fails"),
        (0.8, 0.6, "holds", "fails"),
        (0.9, None, "holds", "fails"),
        (0.9, 0.89, "fails", "holds"),
        (0.5, 0.6, "fails", "holds"),
        (0.9, 0.79, "undecided", "undecided"),
        (0.9, 0.81, "undecided", "undecided"),
    ],
)
def test_a_rule_tolerates_what_costs_little_accuracy(clean, faulty, breaks, tolerated):
    both = [None if part is None else of_samples(part, 2000) for part in (clean, faulty)]
    assert breaks_the_mean("flip", *both).verdict == breaks
    assert tolerates("median", *both).verdict == tolerated


@pytest.mark.parametrize(
    ("faulty", "harm", "shown"),
    [
        (0.6, "lowers the accuracy by more than 10 points", "60.0 ± 1.1 %"),
        (0.2, "ruins the training", "20.0 ± 0.9 %"),
        (None, "ruins the training", "–"),
    ],
)
def test_a_faulty_worker_is_said_to_do_as_much_harm_as_the_run_shows(faulty, harm, shown):
    found = breaks_the_mean("flip", of_samples(0.8, 2000), faulty and of_samples(faulty, 2000))
    words = load_words("shoal_labs.lab2", "en")
    assert words.shown(found.numbers["harm"]) == harm
    assert words.shown(found.numbers["faulty"]) == shown
    assert faulty is None or found.numbers["faulty"].values["percent"].value == 100 * faulty
