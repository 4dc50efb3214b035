"""Staleness and progress, read from a server's events."""

from shoal.report.staleness import staleness_in


def update(rank, step, staleness, event="update"):
    return {"event": event, "rank": rank, "step": step, "staleness": staleness}


def test_histogram_and_progress_of_every_worker():
    records = [update(0, 0, 0), update(1, 0, 1), update(0, 1, 1), update(0, 2, 0), update(1, 1, 3, "dropped")]
    found = staleness_in(records, workers=2)
    assert found.histogram == {0: 2, 1: 2}
    assert found.mean == 0.5
    assert found.in_words() == "0: 50 %, 1: 50 % (mean 0.50, at most 1)"
    assert found.progress_in_words() == "rank 0: 3, rank 1: 1 and 1 dropped"


def test_a_lost_worker_is_marked_until_the_run_is_resumed():
    records = [update(0, 0, 0), update(1, 0, 1), {"event": "lost", "rank": 1, "version": 2, "step": 1}]
    assert [each.lost_after for each in staleness_in(records, workers=2).workers] == [None, 2]
    resumed = [*records, {"event": "start", "step": 1}]
    assert [each.lost_after for each in staleness_in(resumed, workers=2).workers] == [None, None]


def test_what_a_resumed_run_repeats_counts_once():
    start = {"event": "start", "step": 0}
    records = [start, *(update(0, step, 0) for step in range(6)), {**start, "step": 4}, update(0, 4, 0)]
    assert staleness_in(records, workers=1).pushes == 5


def test_many_values_are_summed_up():
    found = staleness_in([update(0, step, step) for step in range(20)], workers=1)
    assert found.in_words().count("%") == 8
    assert "7 or more: 65 %" in found.in_words()


def test_a_run_without_servers_has_none():
    assert staleness_in([{"event": "start", "step": 0}], workers=2) is None
