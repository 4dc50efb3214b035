"""A dead and a stopped worker among those that divide a model: named, nothing hangs, and the run can go on."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from launching import flags

from shoal.comm.group import SlowMemberWarning
from shoal.config.read import read
from shoal.errors import WorkerError
from shoal.events.folder import RunFolder
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

# Processes load torch, which takes long where the machine is busy.
pytestmark = pytest.mark.usefixtures("launching_here")


def config(folder, more, layers=("first", "last"), **options):
    folder.mkdir(exist_ok=True)
    plan = folder / "plan.toml"
    plan.write_text('{} = "column"\n{} = "row"'.format(*layers))
    words = flags(folder, f"--workers 2 --name run --tensor.plan {plan} {more}", **options)
    words[words.index("naive")] = "tensor"
    return read(None, words)


def outcome(folder, fault):
    try:
        return launch_run(config(folder, "--group shm --launch.timeout 10", fault=fault), Silent())
    except WorkerError as error:
        return error
    finally:
        assert (folder / "proof").exists(), "the fault must have happened"


def test_a_dead_and_a_stopped_worker_are_named_and_the_run_goes_on(tmp_path):
    faultless = launch_run(config(tmp_path / "whole", "--launcher threads"), Silent()).weights_sha256
    faults = ("SIGKILL", "stop", "pause")
    with (
        pytest.warns(SlowMemberWarning, match="rank 1 is slow: others have waited 2"),
        ThreadPoolExecutor(len(faults)) as pool,
    ):
        killed, stopped, paused = pool.map(lambda fault: outcome(tmp_path / fault, fault), faults)
    assert (paused.status, paused.weights_sha256) == ("completed", faultless)
    assert killed.message == "rank 1 of 2 was killed by SIGKILL"
    assert re.match(r"rank 1 has not reached all_reduce #\d+: it is stopped \(SIGSTOP\)", stopped.message)
    for fault in ("SIGKILL", "stop"):
        folder = RunFolder(tmp_path / fault / "run")
        # Each worker has saved its own part.
        assert {path.name for path in folder.checkpoints.glob("step-000006/rank*")} == {
            "rank0.safetensors",
            "rank1.safetensors",
        }
    resumed = launch_run(
        config(tmp_path / "SIGKILL", "--launcher threads"), Silent(), RunFolder(tmp_path / "SIGKILL" / "run")
    )
    assert (resumed.status, resumed.weights_sha256) == ("completed", faultless)


def test_a_worker_that_dies_while_the_others_leave_does_not_undo_the_run(tmp_path):
    staged = "--model misbehaving:staged --group shm --checkpoint-every 12"
    settings = config(tmp_path, staged, ("1", "4"), fault="SIGKILL", where="leaving")
    result = launch_run(settings, Silent())
    assert (tmp_path / "proof").exists(), "the fault must have happened"
    assert (result.status, result.steps) == ("completed", 12)
    assert RunFolder(tmp_path / "run").read_result()["weights_sha256"] == result.weights_sha256
