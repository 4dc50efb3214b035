"""Trials: which steps are timed; and budgets in real runs: the peak that a run measures itself stays below."""

import json

import pytest

from shoal.cli.main import main
from shoal.config.read import read
from shoal.errors import ConfigError
from shoal.memory.trial import (
    LONGEST_S,
    MOST_TIMED,
    SHORTEST_S,
    TimedStep,
    fastest,
    is_enough,
    try_each,
)

TEXT = (
    "--model transformer --model.layers 2 --model.width 64 --data synthetic --data.task text --data.shape 64 "
    "--data.samples 128 --batch-size 32 --threads 1 --optimizer adam --device cpu"
)


def steps(number, seconds, is_delayed=False):
    return [TimedStep(seconds, is_delayed)] * number


def test_delayed_steps_are_not_compared():
    """Other programs make a step of a millisecond many times as long, for seconds."""
    assert (
        fastest([*steps(9, 0.05, is_delayed=True), *steps(2, 0.002), TimedStep(0.003, False)]).seconds
        == 0.002
    )
    assert fastest([*steps(1, 0.001, is_delayed=True), *steps(1, 0.002)]) == TimedStep(0.002, False)
    assert fastest([*steps(2, 0.05, is_delayed=True), TimedStep(0.04, True)]) == TimedStep(0.04, True)


def test_short_and_delayed_steps_are_timed_for_longer():
    assert not is_enough(steps(5, 0.001), 5), "all of them may be in one burst of other work"
    assert is_enough(steps(250, SHORTEST_S / 200), 5)
    assert not is_enough([*steps(10, 0.05, is_delayed=True), *steps(4, 0.001)], 5)
    assert is_enough([*steps(10, 0.05, is_delayed=True), *steps(5, 0.001)], 5)


def test_long_steps_are_not_timed_for_longer():
    assert is_enough(steps(5, 0.3), 5)
    assert is_enough(steps(1, LONGEST_S + 1), 5)
    assert is_enough(steps(5, LONGEST_S / 4, is_delayed=True), 5), "even on a busy machine"
    assert is_enough(steps(1, 0.001, is_delayed=True), 5, longest_s=0.0)
    assert is_enough(steps(MOST_TIMED, 0.0001, is_delayed=True), 5)


def test_two_workers_agree_on_the_time_of_a_step():
    flags = (
        "--model linear --data synthetic --batch-size 8 --strategy ddp --workers 2 --threads 1 --device cpu"
    )
    (found,) = try_each([read(None, flags.split())])
    assert found.seconds > 0
    assert found.peak > 0


def test_what_a_worker_refuses_is_refused_here():
    """Not an error of a worker: the search then leaves the technique out."""
    flags = f"{TEXT} --memory.checkpoint 3"
    with pytest.raises(ConfigError, match=r"^--memory.checkpoint 3 recomputes one block of every 3, but"):
        try_each([read(None, flags.split())])


@pytest.mark.long
def test_techniques_lower_the_peak():
    """Compared where freed memory is returned: else gaps of the heap change peaks by half from run to run."""
    plain = f"{TEXT} --model.layers 4".split()
    returning = [*plain, "--memory.return_freed", "true"]
    recomputing = [*returning, "--memory.checkpoint", "1"]
    kept, returned, recomputed = try_each([read(None, flags) for flags in (plain, returning, recomputing)], 2)
    assert returned.peak < kept.peak
    assert recomputed.peak < 0.6 * returned.peak
    assert kept.seconds > 0


def memory_event(folder):
    (path,) = folder.glob("*/events.rank0.jsonl")
    (event,) = (
        each for each in map(json.loads, path.read_text().splitlines()) if each.get("event") == "memory"
    )
    return event


@pytest.mark.long
@pytest.mark.timeout(500)  # every technique is tried in real workers
def test_the_measured_peak_stays_below_the_budget_in_a_process_that_trained_before(tmp_path, capsys):
    assert main(["train", *f"{TEXT} --steps 2 --runs-dir {tmp_path / 'before'}".split()]) == 0
    peaks = []
    for budget in ("400MB", "20MB"):
        runs = tmp_path / budget
        assert main(["train", *f"{TEXT} --steps 40 --memory.budget {budget} --runs-dir {runs}".split()]) == 0
        assert f"--memory.budget {budget}: " in capsys.readouterr().err
        event = memory_event(runs)
        assert event["peak_bytes"] < event["budget_bytes"] == int(budget[:-2]) * 1e6
        peaks.append(event["peak_bytes"])
    assert peaks[1] < peaks[0]


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_budget_that_is_too_small_is_refused_before_the_run_starts(capsys, tmp_path):
    small = f"{TEXT} --batch-size 8"
    assert main(["train", *f"{small} --memory.budget 1MB --runs-dir {tmp_path / 'runs'}".split()]) == 2
    assert "1MB is too small: the smallest that would do is" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
