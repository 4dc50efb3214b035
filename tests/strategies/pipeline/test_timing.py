"""The ideal timeline: stages wait for their inputs and for nothing else."""

import pytest

from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedule import parse_row
from shoal.strategies.pipeline.schedules import build, with_weights_once
from shoal.strategies.pipeline.timing import StageTimes, Timeline, timeline


def drawn(line: Timeline, stage: int) -> str:
    return " ".join(f"{each.action}@{each.start:g}-{each.end:g}" for each in line.rows[stage])


def test_two_stages_of_one_forward_one_backward():
    line = timeline(build("1f1b", 2, 2).rows)
    assert drawn(line, 0) == "F0@0-1 F1@1-2 B0@4-6 B1@7-9"
    assert drawn(line, 1) == "F0@1-2 B0@2-4 F1@4-5 B1@5-7"
    assert line.makespan == 9
    assert line.bubble == pytest.approx(1 / 3)


def test_a_slow_stage_sets_the_pace():
    times = [StageTimes(), StageTimes(forward=3.0, backward=6.0), StageTimes()]
    line = timeline(build("1f1b", 3, 8).rows, times)
    # It waits for the first activation, computes without a pause, and its last gradient goes up.
    assert line.makespan == 1 + 8 * 9 + 2


def test_messages_take_time():
    times = StageTimes(activation=0.5, gradient=0.25)
    assert drawn(timeline(build("gpipe", 2, 1).rows, times), 0) == "F0@0-1 B0@4.75-6.75"


def test_sequential_pays_for_every_message_and_gpipe_for_the_first_ones():
    slow = StageTimes(activation=0.5, gradient=0.5)
    delay = {
        name: timeline(build(name, 2, 8).rows, slow).makespan - timeline(build(name, 2, 8).rows).makespan
        for name in ("sequential", "gpipe")
    }
    assert delay == {"sequential": 8 * (0.5 + 0.5), "gpipe": 0.5 + 0.5}


def test_weight_gradients_at_once_take_the_sum_or_what_was_measured():
    schedule = with_weights_once(build("1f1b", 2, 4))
    assert timeline(schedule.rows).makespan == (4 + 1) * 2 + 4
    assert timeline(schedule.rows, StageTimes(backward_weight_all=1.5)).makespan == (4 + 1) * 2 + 1.5


def test_rows_that_wait_for_each_other_are_refused():
    rows = [parse_row("F0 B0 F1 B1"), parse_row("F0 F1 B0 B1")]
    with pytest.raises(ConfigError, match="stage 0 deadlocks in B0: its input depends on a later action"):
        timeline(rows)


def test_times_belong_to_stages():
    with pytest.raises(ConfigError, match="2 stages need 2 StageTimes, got 3"):
        timeline(build("1f1b", 2, 2).rows, [StageTimes()] * 3)
    with pytest.raises(ConfigError, match="forward of a stage must be a time ≥ 0, got -1"):
        StageTimes(forward=-1)
    with pytest.raises(ConfigError, match="gradient of a stage must be a time ≥ 0, got nan"):
        StageTimes(gradient=float("nan"))
