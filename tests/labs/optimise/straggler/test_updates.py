import pytest

from shoal_labs.optimise.straggler.updates import Update, bound_broken, updates_in


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
