"""The numbers of a run at one moment."""

import subprocess
import sys
import time

import pytest
from growing import Growing

from shoal.watch.follow import FollowedRun
from shoal.watch.snapshot import snapshot, timeline_of


def now_of(folder, **more):
    run = FollowedRun(folder.path)
    run.read()
    return snapshot(run, **more)


@pytest.fixture
def folder(tmp_path):
    made = Growing(tmp_path / "run", workers=2)
    made.begin()
    return made


def test_a_run_that_trains_has_speed_shares_memory_and_a_timeline(folder):
    folder.steps(0, 50)
    now = now_of(folder)
    assert (now.state, now.steps, now.total_steps) == ("training", 50, 100)
    assert now.samples_per_s == pytest.approx(800)
    assert now.left_s == pytest.approx(0.5)
    assert now.timeline_step == 40
    for row in now.workers:
        assert row.shares is not None
        assert row.shares.compute == pytest.approx(0.6, abs=0.01)
        assert row.memory is not None
        assert row.memory > 1e6
    assert not now.slow


def test_a_slow_worker_is_found_while_the_run_trains(folder):
    folder.steps(0, 50, own_ms=[3.0, 9.0])
    now = now_of(folder)
    assert [(row.rank, round(row.slower)) for row in now.slow] == [(1, 3)]
    assert now.workers[0].shares.wait > now.workers[1].shares.wait


def test_stages_of_a_pipeline_are_not_slow(tmp_path):
    stages = Growing(tmp_path / "stages", workers=2, strategy="pipeline")
    stages.begin()
    stages.steps(0, 50, own_ms=[3.0, 9.0])
    assert not now_of(stages).slow


def test_workers_that_take_turns_add_up(folder):
    for number in range(40):
        folder.write(number % 2, folder.step(number % 2, number))
    assert now_of(folder).samples_per_s == pytest.approx(800)


@pytest.mark.parametrize(("status", "state"), [("completed", "finished"), ("interrupted", "stopped")])
def test_a_run_that_ended_says_how(folder, status, state):
    folder.steps(0, 30)
    folder.end(status)
    now = now_of(folder)
    assert (now.state, now.left_s) == (state, None)
    assert all(row.memory is None for row in now.workers)


def test_a_failure_is_the_state_of_the_run(folder):
    folder.steps(0, 3)
    folder.write(1, {"event": "failed", "error": "boom"})
    now = now_of(folder)
    assert (now.state, [row.state for row in now.workers]) == ("failed", ["training", "failed"])


def test_a_worker_whose_process_is_gone_is_gone(tmp_path):
    folder = Growing(tmp_path / "run")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    folder.begin(pid=child.pid)
    folder.steps(0, 3)
    assert now_of(folder).state == "gone"


def test_another_process_with_the_same_number_is_not_the_worker(tmp_path):
    folder = Growing(tmp_path / "run")
    folder.begin(time_ns=10**18)
    folder.steps(0, 3)
    assert now_of(folder).state == "gone"


def test_the_memory_of_a_worker_elsewhere_is_unknown(tmp_path):
    folder = Growing(tmp_path / "run")
    folder.begin(host="elsewhere")
    folder.steps(0, 3)
    (row,) = now_of(folder).workers
    assert (row.state, row.memory) == ("training", None)


def test_a_silent_worker_waits(folder):
    folder.steps(0, 3)
    now = now_of(folder, now_s=time.time() + 60)
    assert {row.state for row in now.workers} == {"waiting"}
    assert now.workers[0].silent_s == pytest.approx(60, abs=20)


def test_before_the_first_step_there_is_nothing_to_draw(folder):
    now = now_of(folder)
    assert (now.state, now.loss, now.samples_per_s, now.timeline_step) == ("starting", None, None, None)
    assert not len(now.curves.steps)


def test_the_timeline_is_the_newest_step_with_spans_of_all_workers(folder):
    folder.steps(0, 45)
    folder.write(0, *(folder.step(0, number) for number in range(45, 61)))
    run = FollowedRun(folder.path)
    run.read()
    assert snapshot(run).timeline_step == 40
    found = timeline_of(run, 40)
    assert found is not None
    assert [row.rank for row in found.rows] == [0, 1]
    assert found.end_ns - found.start_ns == 10_000_000
