"""Tracing does not change a group, and records every call."""

import pytest
import torch
from group_cases import QUICK, run_case

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.events.spans import OUTSIDE_STEPS


@pytest.mark.parametrize("case", QUICK)
def test_a_traced_group_is_a_group(case):
    run_threads(3, lambda group: run_case(traced(group), case, True))


def test_every_call_gives_a_span_for_its_issue_and_one_for_its_wait():
    def work(group):
        spans = []
        group = traced(group, spans.append)
        first = group.all_reduce(torch.zeros(10))
        second = group.all_gather(torch.zeros(8), torch.zeros(4))
        second.wait()
        first.wait()
        first.wait()
        group.split([group.rank]).barrier().wait()
        return spans, group.totals

    for rank, (spans, totals) in enumerate(run_threads(2, work)):
        assert [(span.name, span.kind, span.bytes, span.group, span.sequence) for span in spans] == [
            ("all_gather", "move", 16, "world", 2),
            ("all_gather", "wait", 0, "world", 2),
            ("all_reduce", "move", 40, "world", 1),
            ("all_reduce", "wait", 0, "world", 1),
            ("barrier", "move", 0, f"world[{rank}]", 1),
            ("barrier", "wait", 0, f"world[{rank}]", 1),
        ]
        assert all(span.step == OUTSIDE_STEPS for span in spans)
        for issue, wait in zip(spans[::2], spans[1::2], strict=True):
            assert issue.start_ns <= issue.end_ns <= wait.start_ns <= wait.end_ns
        assert (totals["all_reduce"].calls, totals["all_reduce"].num_bytes) == (1, 40)
        assert totals["barrier"].calls == 1, "calls of a split group count, too"
        assert totals["all_reduce"].blocked_ns == spans[2].duration_ns + spans[3].duration_ns


def test_messages_name_the_member_at_the_other_end():
    def work(group):
        spans = []
        group = traced(group, spans.append)
        if group.rank == 2:
            group.send(torch.zeros(2), 1).wait()
        elif group.rank == 1:
            group.recv(torch.zeros(2), 2).wait()
        group.barrier().wait()
        return [span.peer for span in spans]

    assert run_threads(3, work) == [[-1, -1], [2, 2, -1, -1], [1, 1, -1, -1]]


def test_times_are_read_from_the_clock_that_is_passed_in():
    def work(group):
        ticks = iter(range(10, 1000, 10))
        spans = []
        group = traced(group, spans.append, clock=lambda: next(ticks))
        group.barrier().wait()
        group.split([group.rank]).barrier().wait()
        return [(span.start_ns, span.end_ns) for span in spans]

    assert run_threads(2, work) == [[(10, 20), (30, 40), (50, 60), (70, 80)]] * 2
