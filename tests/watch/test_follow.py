"""A run folder is followed while it grows, and whatever is wrong with it."""

import os

import pytest
from growing import Growing

from shoal.errors import ConfigError
from shoal.watch.follow import FollowedRun, newest_run


@pytest.fixture
def folder(tmp_path):
    return Growing(tmp_path / "run", workers=2)


def steps(run, rank=0):
    return [int(number) for number in run.workers[rank].index.table[:, 0]]


def followed(folder):
    run = FollowedRun(folder.path)
    run.read()
    return run


def test_only_whole_new_lines_are_taken(folder):
    folder.begin()
    run = followed(folder)
    line = folder.line(0, folder.step(0, 0))
    folder.append(0, line[:40])
    assert not run.read()
    folder.append(0, line[40:] + folder.line(0, folder.step(0, 1)))
    assert run.read()
    assert run.workers[0].index.newest(5).table[:, 0].tolist() == [0, 1]
    assert not run.read()
    assert not run.problems


def test_a_resumed_run_repeats_steps_and_validations(folder):
    folder.begin()
    folder.steps(0, 6)
    folder.write(0, {"event": "validation", "step": 4, "epoch": 1, "loss": 1.0, "accuracy": None})
    folder.write(0, {"event": "validation", "step": 6, "epoch": 2, "loss": 0.9, "accuracy": None})
    run = followed(folder)
    folder.write(0, folder.start(0, step=4), folder.step(0, 4))
    assert run.read()
    worker = run.workers[0]
    assert [each["step"] for each in worker.validations] == [4]
    assert steps(run) == [0, 1, 2, 3, 4]


def test_a_line_cut_short_by_a_crash_is_left_out_when_the_run_goes_on(folder):
    folder.begin()
    folder.steps(0, 3)
    folder.append(0, folder.line(0, folder.step(0, 3))[:50] + b"\n")
    folder.write(0, folder.start(0, step=2), folder.step(0, 2))
    run = followed(folder)
    assert not run.problems
    assert steps(run) == [0, 1, 2]


def test_damage_is_named_and_the_rest_is_there(folder):
    folder.begin()
    folder.steps(0, 3)
    folder.append(0, b'{"event":"step","step":3,"crc":"00000000"}\n')
    folder.steps(3, 4)
    run = followed(folder)
    (problem,) = run.problems
    assert "events.rank0.jsonl" in problem
    assert (steps(run), steps(run, 1)) == ([0, 1, 2], [0, 1, 2, 3])
    assert not run.read()


def test_a_file_that_became_shorter_or_another_one_is_read_again(folder):
    folder.begin()
    folder.steps(0, 5)
    run = followed(folder)
    path = run.folder.events(0)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:3]))
    assert run.read()
    path.unlink()
    path.write_bytes(b"".join(whole[:2]))
    assert run.read()
    assert steps(run) == [0]


def test_a_worker_without_a_file_and_a_file_of_another_run_are_problems(folder):
    folder.write(0, folder.start(0), folder.step(0, 0))
    run = followed(folder)
    assert ["events.rank1.jsonl" in problem for problem in run.problems] == [True]
    folder.write(1, folder.start(1, run_id="0ther"))
    run.read()
    assert ["another run" in problem or "belongs to" in problem for problem in run.problems] == [True]


def test_a_foreign_folder_has_a_problem_and_a_new_run_none(tmp_path):
    (tmp_path / "empty").mkdir()
    run = FollowedRun(tmp_path / "empty")
    run.read()
    assert len(run.problems) == 1
    assert not run.workers
    with pytest.raises(ConfigError):
        FollowedRun(tmp_path / "none")


def test_the_newest_run_is_the_one_that_began_last(tmp_path):
    for age, name in enumerate(("a", "c", "b")):
        Growing(tmp_path / name)
        os.utime(tmp_path / name / "config.toml", (1e9 - age, 1e9 - age))
    assert newest_run(tmp_path) == tmp_path / "a"
    with pytest.raises(ConfigError):
        newest_run(tmp_path / "none")


def test_what_workers_print_is_there_with_its_rank(folder):
    folder.begin()
    (folder.path / "worker.rank1.log").write_text("x" * 5000 + "\nhello\n")
    assert followed(folder).output() == [(1, "hello")]
