"""Workers under `local` that die, are stopped, get a signal or never come back: named, although steps do not meet."""

import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from launching import command, config, environment, flags, wait_until

from shoal.errors import WorkerError
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.launch.run import launch_run
from shoal.training import checkpoint
from shoal.training.observer import Silent

# Many processes load torch, which takes long where the machine is busy.
pytestmark = pytest.mark.usefixtures("launching_here")
LOCAL = "--strategy local --strategy.every 5 --workers 2 --name run"
"""Averagings after steps 5 and 10; faults fire in step 8, checkpoints are of steps 3, 6, 9 and 12."""


def failure(folder, more, fault):
    with pytest.raises(WorkerError) as caught:
        launch_run(config(folder, f"{LOCAL} {more}", fault=fault), Silent())
    assert (folder / "proof").exists(), "the fault must have happened"
    assert not (folder / "run" / "result.json").exists(), "a run that failed has no closing record"
    return caught.value


def test_after_a_kill_in_mid_interval_the_run_goes_on_to_the_same_weights(tmp_path):
    error = failure(tmp_path, "--strategy.overlap 2 --group gloo", "SIGKILL")
    assert error.message == "rank 1 of 2 was killed by SIGKILL"
    folder = RunFolder(tmp_path / "run")
    assert checkpoint.latest(folder.checkpoints).progress.step == 6
    resumed = launch_run(config(tmp_path, f"{LOCAL} --strategy.overlap 2"), Silent(), folder)
    (tmp_path / "other").mkdir()
    threads = f"{LOCAL} --strategy.overlap 2 --launcher threads"
    faultless = launch_run(config(tmp_path / "other", threads), Silent())
    assert (resumed.status, resumed.weights_sha256) == ("completed", faultless.weights_sha256)


def test_workers_that_do_not_come_to_the_averaging_are_named(tmp_path):
    """Both at once, since both take their time."""

    def outcome(fault):
        folder = tmp_path / fault
        folder.mkdir()
        return failure(folder, "--launch.timeout 10", fault)

    with ThreadPoolExecutor(2) as pool:
        stopped, stuck = pool.map(outcome, ("stop", "loop"))
    assert re.match(r"rank 1 has not reached all_reduce #\d+: it is stopped \(SIGSTOP\)", stopped.message)
    assert re.match(r"rank 1 has not reached all_reduce #\d+: it is alive, but has made no", stuck.message)


def test_a_signal_stops_all_workers_after_the_same_averaging(tmp_path):
    run = flags(tmp_path, LOCAL.replace("every 5", "every 7"), slow=0.02, fault="none", step=2)
    process = subprocess.Popen(
        command("train", *run, "--epochs", "200", "--checkpoint-every", "1000"),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "proof").exists)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGINT, said
    ends = [list(read_events(tmp_path / f"run/events.rank{rank}.jsonl"))[-1] for rank in range(2)]
    assert [end["status"] for end in ends] == ["interrupted"] * 2
    assert ends[0]["step"] == ends[1]["step"]
    assert ends[0]["step"] % 7 == 0, "the first averaging after the signal"
