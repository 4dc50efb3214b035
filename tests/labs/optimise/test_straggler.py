import random
from types import SimpleNamespace

import pytest
from outcomes import rounds

from shoal_labs.optimise.straggler import (
    CONDITIONS,
    LEARNING,
    WAYS,
    Update,
    Watched,
    bound_broken,
    plan_for,
    updates_in,
)
from shoal_labs.optimise.straggler_page import CLAIMS, asp_learns_sooner

BY_NAME = {claim.name: claim for claim in CLAIMS}


def test_one_worker_is_slow_in_every_run_of_the_condition_and_none_in_the_base():
    plan = plan_for(workers=2, quick=True, first_seed=0)
    runs = plan.runs()
    assert len(runs) == 1 + len(CONDITIONS) * len(WAYS) + len(LEARNING) * (plan.size.repeats - 1)
    for (condition, _), name in plan.named().items():
        slowdowns = [each.slowdown for each in runs[name].launch.bottleneck]
        assert slowdowns == {"even": [3, 3, 3], "always": [3, 3, 9], "passing": [1, 1, 1]}[condition]
    assert all(each.delay_s == (0, 0.03) for each in runs["straggler-passing-ssp"].launch.bottleneck)


def test_only_the_balanced_run_balances():
    runs = plan_for(workers=4, quick=False, first_seed=0).runs()
    assert {name for name, run in runs.items() if run.train.balance} == {
        "straggler-always-balanced",
        "straggler-passing-balanced",
    }
    assert all(run.launch.workers == 4 for run in runs.values())


def watched(seconds, accuracies, updates=()):
    return Watched([1.0], [1.0], seconds, accuracies, updates, dropped=0)


@pytest.mark.parametrize(
    ("accuracies", "value", "spread"),
    [((0.5, 0.7, 0.9), 2.5, 0.5), ((0.8, 0.8, 0.9), 1.0, 0.5), ((0.9, 0.9, 0.9), 0.875, 0.5)],
)
def test_the_time_to_an_accuracy_is_between_two_epochs_with_half_an_epoch_as_spread(
    accuracies, value, spread
):
    found = watched((1.0, 2.0, 3.0), accuracies).time_to(0.8)
    assert found is not None
    assert (found.value, found.spread) == (pytest.approx(value), spread)


def test_an_accuracy_that_is_not_reached_has_no_time():
    assert watched((1.0, 2.0), (0.5, 0.7)).time_to(0.8) is None


def test_staleness_is_counted_and_is_zero_without_a_server():
    updates = [Update(0, 0, 0, 1, 0), Update(1, 0, 0, 2, 1), Update(0, 1, 1, 3, 1)]
    assert watched((), (), updates).staleness == {0: 1, 1: 2}
    assert watched((), (), updates).mean_staleness == pytest.approx(2 / 3)
    assert watched((), ()).mean_staleness == 0


def test_staleness_is_averaged_over_the_updates_of_each_epoch():
    updates = [Update(0, 0, 0, 1, 4), Update(0, 1, 0, 2, 2), Update(1, 1, 0, 3, 9), Update(0, 2, 0, 4, 1)]
    assert watched((), (), updates).staleness_of([0], epoch_steps=2) == [3.0, 1.0]
    assert watched((), (), updates).staleness_of([1], epoch_steps=2) == [9.0]


def test_updates_are_read_from_a_servers_log_without_what_was_dropped():
    update = {"event": "update", "rank": 1, "step": 2, "from_version": 3, "version": 5, "staleness": 1}
    log = [{"event": "start", "step": 0}, update | {"sequence": 3}, {**update, "event": "dropped"}]
    assert updates_in(log) == [Update(1, 2, 3, 5, 1)]


@pytest.mark.parametrize(("bound", "broken"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_a_fast_worker_breaks_every_bound_that_it_is_further_ahead_of(bound, broken):
    # Rank 1 makes its only step last; rank 0 makes steps 0 to 3 before, and never knows of it.
    ahead = [Update(0, step, from_version=step, version=step + 1, staleness=0) for step in range(4)]
    late = Update(1, 0, from_version=0, version=5, staleness=4)
    assert bound_broken([*ahead, late], bound) == broken


def test_an_empty_log_breaks_nothing():
    assert bound_broken([], 3) == 0


def taking(asp, bsp):
    """Measurements of two ways that reach 85 % after so many seconds; None: never."""

    def run(seconds):
        return SimpleNamespace(time_to=lambda _: None if seconds is None else SimpleNamespace(value=seconds))

    def way(times):
        first, *again = map(run, times)
        first.again = again
        return first

    return SimpleNamespace(ways={("always", "asp"): way(asp), ("always", "bsp"): way(bsp)})


@pytest.mark.parametrize(
    ("asp", "bsp", "verdict"),
    [
        (rounds(2.0), rounds(5.0), "holds"),
        (rounds(5.0), rounds(2.0), "fails"),
        (rounds(2.0), rounds(2.0, noise=-9), "undecided"),
        ([2.0], [5.0], "undecided"),
        ([None, 2.0, 2.1, 2.2], [5.0, 5.1, 5.2, 5.3], "undecided"),
    ],
)
def test_one_way_learns_sooner_if_all_its_runs_reach_the_target_and_take_less_time(asp, bsp, verdict):
    found = asp_learns_sooner(taking(asp, bsp))
    assert (found.verdict, found.about_time) == (verdict, True)


@pytest.mark.parametrize(
    ("broken", "updates", "verdict"), [(0, 300, "holds"), (1, 300, "fails"), (0, 0, "fails")]
)
def test_the_bound_is_kept_if_there_are_updates_and_none_breaks_it(broken, updates, verdict):
    assert BY_NAME["ssp_keeps_its_bound"].verdict({"broken": broken, "updates": updates}) == verdict


def test_two_ways_that_are_equally_fast_never_come_out_as_faster():
    draw = random.Random(0)
    names = [name for name, claim in BY_NAME.items() if getattr(claim, "rule", "") == "fast > slow"]
    assert len(names) == 5
    for _ in range(300):
        rates = {
            (condition, way): SimpleNamespace(rates=[draw.gauss(1000.0, 30.0) for _ in range(4)])
            for condition in CONDITIONS
            for way in WAYS
        }
        for name in names:
            assert BY_NAME[name].judge(SimpleNamespace(ways=rates)).verdict != "holds"
