"""Spans of one worker, by kind."""

import threading

from shoal.events.spans import LANE, Span
from shoal.profile.recorder import Recorder, own_ns


def test_every_moment_counts_for_the_innermost_span():
    spans = [
        Span(0, "step", "compute", LANE, 0, 100),
        Span(0, "data", "data", LANE, 10, 30),
        Span(0, "all_reduce", "wait", LANE, 50, 90, group="world"),
    ]
    assert own_ns(spans) == {"compute": 40, "data": 20}


def test_other_threads_have_lanes_of_their_own_and_do_not_count():
    recorder = Recorder(0, 1)
    with recorder.span("forward", "compute"):
        pass

    def other():
        with recorder.span("forward", "compute"):
            pass

    thread = threading.Thread(target=other, name="other")
    thread.start()
    thread.join()
    recorder.end_step()
    (step,) = recorder.steps
    assert [lane for _, _, lane, *_ in step["spans"]] == [LANE, "other"]
    assert step["totals_ns"]["compute"] == step["spans"][0][4] - step["spans"][0][3]


def test_ddp_waits_for_its_buckets_one_after_another():
    recorder = Recorder(0, 2)
    with recorder.backward():
        calls = [recorder.issued("all_reduce", 10, 4, "world"), recorder.issued("all_reduce", 20, 4, "world")]
        for call, end_ns, done_ns in zip(calls, (15, 30), (100, 80), strict=True):
            call.issue, call.done_ns = call.issue._replace(end_ns=end_ns), done_ns
    recorder.end_step()
    waits = [(start, end) for _, kind, _, start, end, *_ in recorder.steps[0]["spans"] if kind == "wait"]
    assert waits == [(30, 100), (100, 100)]


def test_a_bucket_whose_end_comes_late_was_there_at_the_end_of_the_pass():
    """DDP waits for all buckets before the pass ends, and the thread that notes the end may wait for Python's lock."""
    recorder = Recorder(0, 2)
    with recorder.backward():
        calls = [recorder.issued("all_reduce", 0, 4, "world") for _ in range(2)]
        calls[1].tells_done = True
    recorder.end_step()
    spans = recorder.steps[0]["spans"]
    waits = [(start, end) for _, kind, _, start, end, *_ in spans if kind == "wait"]
    (pass_end,) = [end for name, _, _, _, end, *_ in spans if name == "backward"]
    assert waits[0][0] == waits[0][1]
    assert waits[0][1] < pass_end <= waits[1][1]
