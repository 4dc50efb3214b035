import gc
import itertools
import random

import pytest
import torch

from shoal_labs.timing import contest as module
from shoal_labs.timing.contest import FEWEST_ROUNDS, Contest, contest, contests, one_thread


@pytest.fixture
def ticking(monkeypatch):
    """A clock that moves only by what a rival takes."""

    class Clock:
        now = 0.0

        def rival(self, seconds, log=None, name=""):
            def call():
                self.now += seconds
                if log is not None:
                    log.append(name)

            return call

    clock = Clock()
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)
    return clock


def test_a_short_call_is_repeated_within_its_turn_and_the_time_is_that_of_one_call(ticking):
    found = contest({"short": ticking.rival(0.001), "long": ticking.rival(0.5)}, rounds=6, budget_s=1e9)
    assert found.seconds["short"] == pytest.approx((0.001,) * 6)
    assert found.seconds["long"] == pytest.approx((0.5,) * 6)


def test_rivals_take_turns_and_each_begins_in_its_turn(ticking):
    log = []
    contest({name: ticking.rival(1.0, log, name) for name in "abc"}, rounds=3, budget_s=1e9)
    turns = log[2 * 3 * module.WARM_UP :][: 2 * 3 * 3 * module.TURNS]
    assert turns[::2] == turns[1::2]  # a call that is not counted, and one that is
    assert "".join(turns[::2]) == 3 * "abc" + 3 * "bca" + 3 * "cab"


def test_a_rival_that_always_follows_a_heavy_one_is_not_slower_by_that(ticking):
    last = [""]

    def rival(name):
        def call():
            cold = last[0] == "heavy" and name != "heavy"
            ticking.rival(1.0 + cold)()
            last[0] = name

        return call

    found = contest({name: rival(name) for name in ("heavy", "a", "b")}, rounds=11, budget_s=1e9)
    assert found.seconds["a"] == found.seconds["b"]


def test_the_fastest_turn_of_a_round_counts(ticking):
    durations = itertools.cycle([1.0, 9.0, 2.0])
    found = contest({"disturbed": lambda: ticking.rival(next(durations))()}, rounds=2, budget_s=1e9)
    assert found.seconds["disturbed"] == (1.0, 1.0)


def test_a_spent_budget_ends_it_after_a_few_rounds(ticking):
    found = contest({"slow": ticking.rival(10.0)}, rounds=100, budget_s=1.0)
    assert len(found.seconds["slow"]) == FEWEST_ROUNDS


def test_all_places_of_a_scale_take_part_in_one_contest(ticking):
    log = []
    places = {n: {name: ticking.rival(float(n), log, f"{n}{name}") for name in "ab"} for n in (1, 2)}
    found = contests(places, rounds=1, budget_s=1e9)
    turns = log[2 * 4 * module.WARM_UP :]
    assert turns[:8:2] == ["1a", "1b", "2a", "2b"]
    assert {n: {name: set(its) for name, its in contest.seconds.items()} for n, contest in found.items()} == {
        1: {"a": {1.0}, "b": {1.0}},
        2: {"a": {2.0}, "b": {2.0}},
    }


def test_a_ratio_is_formed_round_by_round_so_that_a_slow_second_cancels():
    slow_seconds = [1.0, 1.0, 30.0, 1.0, 7.0]
    found = Contest({"fast": tuple(slow_seconds), "slow": tuple(2 * s for s in slow_seconds)})
    ratio = found.ratio("fast", "slow")
    assert (ratio.value, ratio.spread) == (0.5, 0.0)
    assert found.ms("slow").value == 2000.0
    assert found.compared("fast", "slow")[0].difference.value < 0


@pytest.mark.parametrize(("slow", "expected"), [(2.0, 12), (1.0, 24)])
def test_rounds_end_when_they_decide_or_at_their_limit(ticking, slow, expected):
    draw = random.Random(0)

    def noisy(seconds):
        return lambda: ticking.rival(seconds * draw.uniform(0.7, 1.3))()

    found = contest({"a": noisy(1.0), "b": noisy(slow)}, rounds=12, budget_s=1e9)
    assert len(found.seconds["a"]) == expected


def test_what_is_switched_is_restored_also_after_an_error():
    threads = torch.get_num_threads()
    calls = itertools.count()

    def fail():
        if next(calls) == module.WARM_UP:
            raise RuntimeError

    with pytest.raises(RuntimeError), one_thread():
        contest({"failing": fail}, rounds=5, budget_s=1.0)
    assert gc.isenabled()
    assert torch.get_num_threads() == threads
