"""Spans: measured by the clock that is handed in."""

import pytest

from shoal.events.spans import SpanRecorder, totals_ns


class CountingClock:
    lane = "test"

    def __init__(self):
        self.now = 0

    def mark(self):
        self.now += 10
        return self.now

    def nanoseconds(self, mark):
        return mark


def test_spans_and_totals():
    span = SpanRecorder(CountingClock())
    with span("batch", "data"):
        pass
    with span("forward", "compute"):
        pass
    with span("backward", "compute"):
        pass
    spans = span.read(span.take(), step=7)
    assert [(s.step, s.name, s.lane, s.start_ns, s.end_ns) for s in spans] == [
        (7, "batch", "test", 10, 20),
        (7, "forward", "test", 30, 40),
        (7, "backward", "test", 50, 60),
    ]
    assert totals_ns(spans) == {"data": 10, "compute": 20}
    assert span.take() == []


def test_a_span_ends_also_when_its_body_fails():
    span = SpanRecorder(CountingClock())

    def fails():
        with span("forward", "compute"):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    assert len(span.take()) == 1


def test_an_inactive_recorder_never_looks_at_the_clock():
    clock = CountingClock()
    span = SpanRecorder(clock)
    span.active = False
    with span("forward", "compute"):
        pass
    assert clock.now == 0
    assert span.take() == []
