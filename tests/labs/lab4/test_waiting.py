import pytest

from shoal.events.spans import Span
from shoal.events.steps import StepRecord
from shoal.report.communication import WARM_UP_STEPS, RankShares
from shoal.report.findings import Measured
from shoal.strategies.pipeline.schedules import build
from shoal_labs.lab4.waiting import divided_by_sender


def call(name, sequence, start, issued, waits, end):
    """A call that is issued at once and waited for later."""
    return (
        Span(0, name, "move", "main", start, issued, 100, "world", sequence),
        Span(0, name, "wait", "main", waits, end, 0, "world", sequence),
    )


def shares(rank):
    return RankShares(rank, 1.0, 0.5, 0.4, 0.0, Measured(0.1, 0.0, "steps", 5), 5, 5, ())


def divided(*stages):
    """Two stages, one micro-batch: the shares after the same step was made several times."""
    rows = build("gpipe", 2, 1).rows
    ranks = [[StepRecord(0, 1.0, {}, 0, spans)] * (WARM_UP_STEPS + 3) for spans in stages]
    return divided_by_sender([shares(0), shares(1)], ranks, rows)


def test_until_the_neighbour_sends_a_stage_is_idle_and_then_the_message_is_under_way():
    first = (*call("send", 1, 60, 60, 60, 60), *call("recv", 2, 60, 60, 60, 100))
    second = (*call("recv", 1, 0, 0, 0, 80), *call("send", 2, 90, 90, 90, 90))
    found = divided(first, second)
    # Stage 0 was blocked from 60 to 100, and the gradient was sent at 90; stage 1 from 0 to 80, sent at 60.
    assert [each.wait_s for each in found] == pytest.approx([0.4 * 30 / 40, 0.4 * 60 / 80])
    assert [each.move_s + each.wait_s for each in found] == pytest.approx([0.4, 0.4])


def test_a_message_that_was_sent_before_it_was_wanted_leaves_no_idle_time():
    first = (*call("send", 1, 0, 0, 0, 0), *call("recv", 2, 50, 50, 50, 60))
    second = (*call("recv", 1, 10, 10, 10, 20), *call("send", 2, 30, 30, 30, 30))
    assert [each.wait_s for each in divided(first, second)] == [0.0, 0.0]


def test_in_a_collective_all_wait_for_the_last():
    messages = (*call("send", 1, 0, 0, 0, 0), *call("recv", 2, 0, 0, 0, 0))
    early = (*messages, *call("all_reduce", 3, 10, 10, 10, 50))
    late = (
        *call("recv", 1, 0, 0, 0, 0),
        *call("send", 2, 0, 0, 0, 0),
        *call("all_reduce", 3, 40, 40, 40, 50),
    )
    assert [each.wait_s for each in divided(early, late)] == pytest.approx([0.4 * 30 / 40, 0.0])
