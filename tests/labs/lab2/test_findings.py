import pytest
from outcomes import OUTCOMES_OF_A_COMPARISON, assert_complete, assert_says, cases_of

from shoal.report.findings import of_samples
from shoal.report.paired import by_seeds
from shoal_labs.lab2 import claims
from shoal_labs.page.analysis import judgement
from shoal_labs.words import load_words

LOWER, HIGHER, SAME = (by_seeds(*each) for each in OUTCOMES_OF_A_COMPARISON)
FIRST_LOWER = {"holds": [(LOWER,)], "fails": [(HIGHER,)], "undecided": [(SAME,)]}
SECOND_LOWER = {"holds": [(HIGHER,)], "fails": [(LOWER,)], "undecided": [(SAME,)]}


def accuracies(*parts):
    """On 2,000 samples."""
    return tuple(None if part is None else of_samples(part, 2000) for part in parts)


LOST = [accuracies(0.9, 0.2), accuracies(0.8, 0.6), accuracies(0.9, None)]
KEPT = [accuracies(0.9, 0.89), accuracies(0.5, 0.6)]
CLOSE = [accuracies(0.9, 0.79), accuracies(0.9, 0.81)]
BREAKS = {"holds": LOST, "fails": KEPT, "undecided": CLOSE}
TOLERATES = {"holds": KEPT, "fails": LOST, "undecided": CLOSE}
SENT = {"by:ring": 800, "by:central": 800}


def with_last(cases, *last):
    return {verdict: [(*args, *last) for args in rows] for verdict, rows in cases.items()}


OUTCOMES = {
    claims.same_sum: {
        "holds": [({"a": 1e-8}, {"a": True})],
        "fails": [({"a": 0.1}, {"a": True}), ({"a": 0.0}, {"a": False})],
    },
    claims.labels: {"holds": [({"a": True},)], "fails": [({"a": True, "b": False},)]},
    claims.bytes_sent: {"holds": [(SENT, SENT, 100)], "fails": [(SENT, {**SENT, "by:ring": 804}, 100)]},
    claims.all_reduce_beats_gather: FIRST_LOWER,
    claims.all_reduce_beats_all_gather: FIRST_LOWER,
    claims.waiting_is_less: FIRST_LOWER,
    claims.sum_is_scaled_mean: {"holds": [(0.0, 2), (1e-7, 3)], "fails": [(1e-2, 2)]},
    claims.sum_learns_faster: with_last(SECOND_LOWER, 100),
    claims.adam_indifferent: FIRST_LOWER,
    claims.parameters_equal_gradients: {"holds": [(1e-7,)], "fails": [(0.1,)]},
    claims.adam_parameters_differ: {"holds": [(0.1,)], "fails": [(1e-7,)]},
    claims.stages_equal: {"holds": [(0.0,)], "fails": [(0.1,)]},
    claims.stages_faster: SECOND_LOWER,
    claims.combine_stages_learn: with_last(SECOND_LOWER, 40),
    claims.slow_worker_keeps_all_waiting: SECOND_LOWER,
    claims.no_collective_helps: SECOND_LOWER,
    claims.slow_link_moves: SECOND_LOWER,
    claims.slow_link_choice: SECOND_LOWER,
    claims.throughput_falls: with_last(FIRST_LOWER, 3),
    claims.balance_brings_back: SECOND_LOWER,
    claims.balance_changes_nothing: {"holds": [(1e-6, 20)], "fails": [(0.1, 20)]},
    claims.exact_on_uneven: {"holds": [(1e-7, 1e-7)], "fails": [(1e-7, 0.1), (0.1, 1e-7)]},
    claims.mean_of_means_differs: {"holds": [(0.1, 1e-7)], "fails": [(1e-7, 1e-7)]},
    claims.mean_of_means_costs: SECOND_LOWER,
    claims.nan_is_stopped: {"holds": [(True,)], "fails": [(False,)]},
    claims.huge_breaks_the_mean: BREAKS,
    claims.flip_breaks_the_mean: BREAKS,
    claims.median_tolerates: TOLERATES,
    claims.trimmed_mean_tolerates: TOLERATES,
    claims.krum_tolerates: TOLERATES,
    claims.krum_costs: SECOND_LOWER,
}


@pytest.mark.parametrize(("finding", "verdict", "args"), cases_of(OUTCOMES))
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_can_come_out_either_way_and_says_so(finding, verdict, args, lang):
    assert_says(finding, verdict, args, "shoal_labs.lab2", lang)


def test_every_finding_has_all_its_outcomes_and_an_explanation_for_each():
    assert_complete(OUTCOMES, "shoal_labs.lab2")


@pytest.mark.parametrize(
    ("faulty", "harm", "shown"),
    [
        (0.6, "lowers the accuracy by more than 10 points", "60.0 ± 1.1 % with"),
        (0.2, "ruins the training", "20.0 ± 0.9 % with"),
        (None, "ruins the training", "without, – with"),
    ],
)
def test_a_faulty_worker_is_said_to_do_as_much_harm_as_the_run_shows(faulty, harm, shown):
    said = judgement(
        claims.flip_breaks_the_mean(*accuracies(0.8, faulty)), load_words("shoal_labs.lab2", "en")
    )
    assert harm in said.claim
    assert shown in said.numbers
