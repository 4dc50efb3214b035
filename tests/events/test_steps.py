"""Steps as reports read them: one record per step, all times on rank 0's clock."""

from shoal.events.spans import Span
from shoal.events.steps import settled, steps_of

HOUR_NS = 3_600_000_000_000


def start(step=0, **clock):
    return {"event": "start", "step": step} | ({"clock": clock} if clock else {})


def end(**clock):
    return {"event": "end", "status": "completed"} | ({"clock": clock} if clock else {})


def step(number, *spans, seconds=None, **more):
    record = {"event": "step", "step": number, "seconds": number + 1.0 if seconds is None else seconds}
    return record | {"totals_ns": {}, "blocked_ns": 0, "spans": list(spans)} | more


def forward(start_ns, end_ns):
    return ["forward", "compute", "main", start_ns, end_ns, 0, "", -1]


def times(records):
    return [(span.start_ns, span.end_ns) for each in steps_of(records) for span in each.spans or ()]


def test_all_fields_of_a_span_are_read():
    issue = ["all_reduce", "move", "main", 10, 20, 40, "world", 7]
    (record,) = steps_of([start(), step(3, forward(1, 5), issue, seconds=2.5)])
    assert (record.step, record.seconds) == (3, 2.5)
    assert record.spans == (
        Span(3, "forward", "compute", "main", 1, 5, 0, "", -1),
        Span(3, "all_reduce", "move", "main", 10, 20, 40, "world", 7),
    )


def test_calls_of_older_event_files_become_two_spans():
    older = step(3, forward(1, 5), calls=[["all_reduce", 40, "world", 7, 10, 20, 50, 90]])
    issue = ["all_reduce", "move", "main", 10, 20, 40, "world", 7]
    wait = ["all_reduce", "wait", "main", 50, 90, 0, "world", 7]
    assert steps_of([start(), older]) == steps_of([start(), step(3, forward(1, 5), issue, wait)])


def test_without_spans_a_step_still_has_its_totals():
    record = step(0, totals_ns={"compute": 8}, blocked_ns=5)
    del record["spans"]
    (read,) = steps_of([start(), record])
    assert (read.totals_ns, read.blocked_ns, read.spans) == ({"compute": 8}, 5, None)


def test_the_offset_changes_linearly_from_start_to_end():
    records = [
        start(at_ns=HOUR_NS, offset_ns=5_000_000_000, error_ns=10),
        step(0, forward(HOUR_NS, HOUR_NS + 1000)),
        end(at_ns=HOUR_NS + 1000, offset_ns=5_000_000_100, error_ns=10),
    ]
    assert times(records) == [(HOUR_NS - 5_000_000_000, HOUR_NS + 1000 - 5_000_000_100)]


def test_a_run_that_crashed_has_the_offset_of_its_start():
    crashed = [start(at_ns=500, offset_ns=-7_000, error_ns=10), step(0, forward(1000, 2000))]
    assert times(crashed) == [(8000, 9000)]


def test_every_attempt_has_a_clock_of_its_own():
    records = [
        start(at_ns=0, offset_ns=100, error_ns=1),
        step(0, forward(1000, 2000)),
        step(1, forward(3000, 4000)),
        start(1, at_ns=0, offset_ns=900, error_ns=1),  # the machine was restarted
        step(1, forward(1000, 2000)),
        end(at_ns=5000, offset_ns=900, error_ns=1),
    ]
    assert times(records) == [(900, 1900), (100, 1100)]
    assert [each.seconds for each in steps_of(records)] == [1.0, 1.0]


def test_a_resumed_run_cancels_what_it_repeats_also_if_it_ends_earlier():
    records = [start(), step(0), step(1), step(2), {"event": "validation", "step": 2}, start(1), step(1)]
    assert [(r["event"], r["step"]) for r in settled(records)] == [
        ("start", 0),
        ("step", 0),
        ("start", 1),
        ("step", 1),
    ]
