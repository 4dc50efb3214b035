"""Tracing changes nothing and misses nothing."""

import pytest
import torch
from group_cases import CASES, run_case

from shoal.comm.threads import run_threads
from shoal.comm.traced import traced


@pytest.mark.parametrize("case", CASES)
def test_a_traced_group_is_a_group(case):
    run_threads(3, lambda group: run_case(traced(group), case, True))


def test_every_call_gives_one_span():
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
        assert [(span.operation, span.num_bytes, span.group, span.sequence) for span in spans] == [
            ("all_gather", 16, "world", 2),
            ("all_reduce", 40, "world", 1),
            ("barrier", 0, f"world[{rank}]", 1),
        ]
        assert all(span.start_ns <= span.issued_ns <= span.wait_ns <= span.end_ns for span in spans)
        assert (totals["all_reduce"].calls, totals["all_reduce"].num_bytes) == (1, 40)
