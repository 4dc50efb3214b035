import json

import pytest

from shoal.strategies.pipeline.schedules import build
from shoal.strategies.pipeline.timing import StageTimes, timeline
from shoal_labs.lab4.actions import read_pipelined

TIMES = (StageTimes(forward=2.0, backward=4.0), StageTimes(forward=1.0, backward=2.0))
DELAY_MS = 3.0
"""Between the last action of a step and the end of the step."""


def write_run(folder, schedule, microbatches, steps):
    """Event files of a pipeline that took exactly these times; the first steps took ten times as long."""
    ideal = timeline(build(schedule, 2, microbatches).rows, TIMES)
    for stage, row in enumerate(ideal.rows):
        records = [{"event": "start", "step": 0}]
        begin_ms = 0.0
        for step in range(steps):
            slow = 10 if step < 2 else 1
            spans = [
                (
                    str(each.action),
                    "compute",
                    "main",
                    round((begin_ms + slow * each.start) * 1e6),
                    round((begin_ms + slow * each.end) * 1e6),
                )
                for each in row
            ]
            spans.append(("update", "compute", "main", 0, 10**9))  # not an action of the schedule
            begin_ms += slow * ideal.makespan + DELAY_MS
            records.append(
                {"event": "step", "step": step, "seconds": begin_ms / 1e3, "totals_ns": {}, "spans": spans}
            )
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"events.rank{stage}.jsonl").write_text(lines, encoding="utf-8")
    return ideal


@pytest.mark.parametrize("schedule", ["sequential", "gpipe", "1f1b"])
def test_a_run_without_delays_is_its_own_ideal(schedule, tmp_path):
    ideal = write_run(tmp_path, schedule, 4, steps=6)
    found = read_pipelined(tmp_path, schedule, 2, 4)
    assert len(found.steps) == 4  # two steps warm up
    assert found.makespan.value == pytest.approx(ideal.makespan)
    assert found.ideal.makespan == pytest.approx(ideal.makespan)
    assert found.bubble.value == pytest.approx(ideal.bubble)
    assert found.stage_ms == pytest.approx((24.0, 12.0))
    assert found.live == tuple(ideal.peak_live(stage) for stage in range(2))


def test_live_activations_are_counted_in_the_events(tmp_path):
    """A run that was executed as GPipe holds all micro-batches, whatever schedule it is compared with."""
    write_run(tmp_path, "gpipe", 4, steps=4)
    assert read_pipelined(tmp_path, "1f1b", 2, 4).live == (4, 4)
