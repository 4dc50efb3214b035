"""Clock offsets, measured through real groups of threads whose clocks differ by seconds and drift."""

import json
import time

import pytest
import torch

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.events.file import EventFile, read_events
from shoal.events.folder import RunFolder
from shoal.events.spans import HostClock, SpanRecorder, host_ns
from shoal.report.communication import communication
from shoal.strategies.strategy import StepResult
from shoal.training.observer import Silent
from shoal.training.progress import Progress
from shoal.training.setup.device import measure_clock_offset
from shoal.training.steplog import StepLog

SECOND_NS = 1_000_000_000
SHIFTS_NS = (0, -7 * SECOND_NS, 5 * SECOND_NS)
STEPS = 6


def shifted(shift_ns):
    return lambda: host_ns() + shift_ns


def test_the_offset_is_within_the_error_that_is_reported():
    measured = run_threads(3, lambda group: measure_clock_offset(group, shifted(SHIFTS_NS[group.rank])))
    assert measured[0].offset_ns == measured[0].error_ns == 0
    for offset, shift_ns in zip(measured[1:], SHIFTS_NS[1:], strict=True):
        assert abs(offset.offset_ns - shift_ns) <= offset.error_ns < SECOND_NS


def test_workers_that_share_a_clock_have_no_offset_at_all():
    assert [measured.offset_ns for measured in run_threads(3, measure_clock_offset)] == [0, 0, 0]


def test_the_ping_with_the_shortest_round_trip_counts():
    class Rank0:
        """A peer whose clock is 100 behind; some of its answers take longer on one of their ways."""

        rank, size = 1, 2

        def send(self, tensor, to):
            assert to == 0
            return self

        def recv(self, tensor, sender):
            tensor[0] = self.answers.pop(0)
            return self

        def wait(self):
            pass

    group = Rank0()
    group.answers = [-40, 905, 1905, 2905, 3905]
    moments = iter([0, 500, 1000, 1010, 2000, 2200, 3000, 3200, 4000, 4200])
    assert measure_clock_offset(group, lambda: next(moments)) == (1005, 100, 5)


def test_a_world_of_one_sends_nothing():
    def work(group):
        group = traced(group)
        return measure_clock_offset(group).offset_ns, group.totals

    assert run_threads(1, work) == [(0, {})]


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "crashed"])
def test_waiting_and_moving_are_right_though_no_two_workers_share_a_clock(tmp_path, ended):
    """The events of one run, on clocks seconds apart, against the same events on the true clock.

    The clocks of the run that ended also drift, by 5 %; the run that crashed has only the offset of its start.
    """

    def work(group):
        rank, zero_ns = group.rank, host_ns()
        percent = (0, 5, -5)[rank] if ended else 0

        def clock():
            now = host_ns()
            return now + SHIFTS_NS[rank] + (now - zero_ns) * percent // 100

        def true_ns(time_ns):
            return zero_ns + (time_ns - SHIFTS_NS[rank] - zero_ns) * 100 // (100 + percent)

        records = run_steps(tmp_path / f"{rank}.jsonl", group, clock, ended)
        write(tmp_path / "measured", rank, records)
        write(tmp_path / "ignored", rank, [without_clock(record) for record in records])
        write(tmp_path / "true", rank, [without_clock(record, true_ns) for record in records])
        return max(record["clock"]["error_ns"] for record in records if "clock" in record)

    error_s = max(run_threads(3, work)) / 1e9
    # In each call a worker's waiting depends on two clocks: its own and that of the last member.
    tolerance_s = 1.1 * STEPS * 2 * error_s
    measured, exact = communication(tmp_path / "measured"), communication(tmp_path / "true")
    assert [rank.wait_s for rank in measured] == pytest.approx(
        [rank.wait_s for rank in exact], abs=tolerance_s
    )
    assert [rank.move_s for rank in measured] == pytest.approx(
        [rank.move_s for rank in exact], abs=tolerance_s
    )
    ahead = communication(tmp_path / "ignored")[2]
    assert ahead.wait_s == 0, "without offsets the worker whose clock is ahead seems to come last"


def run_steps(path, group, clock, ended):
    """The events of some steps with one all-reduce each, to which rank 1 comes late."""
    calls = []
    counted = traced(group, calls.append, clock=clock)
    with EventFile(path) as events:
        events.append({"event": "start", "step": 0, "clock": measure_clock_offset(group, clock)._asdict()})
        span = SpanRecorder(HostClock(clock))
        log = StepLog(events, span, calls, Silent(), False, keep_all_spans=True)
        progress = Progress()
        for _ in range(STEPS):
            if group.rank == 1:
                time.sleep(0.01)
            counted.all_reduce(torch.ones(10)).wait()
            progress = log.step(progress.after_step(8), StepResult(torch.tensor(1.0)), 8, 0.1)
        if ended:
            events.append({"event": "end", "clock": measure_clock_offset(group, clock)._asdict()})
    return read_events(path)


def without_clock(record, convert=lambda time_ns: time_ns):
    spans = [[*span[:3], *map(convert, span[3:5]), *span[5:]] for span in record.get("spans", ())]
    return {key: value for key, value in record.items() if key != "clock"} | {"spans": spans}


def write(path, rank, records):
    path.mkdir(exist_ok=True)
    RunFolder(path).events(rank).write_text("".join(json.dumps(record) + "\n" for record in records))
