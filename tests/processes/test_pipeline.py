"""A stage that dies or is stopped in the middle of a step: named, nothing hangs, and the run goes on."""

import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from launching import HERE, config

from shoal.comm.group import SlowMemberWarning
from shoal.errors import WorkerError
from shoal.events.folder import RunFolder
from shoal.launch.run import launch_run
from shoal.training import checkpoint
from shoal.training.observer import Silent

# The model counts forward passes: the 30th is of the second micro-batch of step 7.
PIPELINE = "--model misbehaving:staged --strategy pipeline --workers 2 --pipeline.cut 4 --name run"


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def faultless(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faultless")
    return launch_run(config(folder, f"{PIPELINE} --launcher threads"), Silent()).weights_sha256


def failure(folder, more, **options):
    with pytest.raises(WorkerError) as caught:
        launch_run(config(folder, f"{PIPELINE} {more}", **options), Silent())
    assert (folder / "proof").exists(), "the fault must have happened"
    return caught.value


def assert_goes_on(folder, faultless, saved=(3, 6)):
    """Both checkpoints verify, and the resumed run ends with the weights of a run without a fault."""
    run = RunFolder(folder / "run")
    steps = [checkpoint.verify(path).progress.step for path in sorted(run.checkpoints.iterdir())]
    assert steps == [*saved]
    resumed = launch_run(config(folder, f"{PIPELINE} --launcher threads"), Silent(), run)
    assert (resumed.status, resumed.weights_sha256) == ("completed", faultless)


def test_a_stage_that_dies_in_forward(tmp_path, faultless):
    error = failure(tmp_path, "--group shm", fault="SIGKILL", step=30)
    assert error.message == "rank 1 of 2 was killed by SIGKILL"
    assert error.exit_code == 128 + signal.SIGKILL
    seen = (tmp_path / "run/worker.rank0.log").read_text()
    assert re.search(
        r"rank 1 died.*; stage 0 waits for stage 1 to send the gradient of micro-batch [01]", seen
    )
    assert_goes_on(tmp_path, faultless)


def test_a_stage_that_is_stopped_in_backward(tmp_path, faultless):
    error = failure(tmp_path, "--group gloo", fault="stop", where="backward", step=30)
    assert re.search(r"rank 1 .*is stopped \(SIGSTOP\); stage 0 waits for stage 1", error.message)
    assert_goes_on(tmp_path, faultless)


def test_a_stage_that_dies_after_the_last_step(tmp_path, faultless):
    error = failure(tmp_path, "--group shm", fault="SIGKILL", where="evaluation", step=4)
    assert error.message == "rank 1 of 2 was killed by SIGKILL"
    assert "rank 1 died before" in (tmp_path / "run/worker.rank0.log").read_text()
    assert_goes_on(tmp_path, faultless, saved=(9, 12))


def test_a_pause_of_a_stage_is_survived(tmp_path, faultless):
    def paused(group):
        (tmp_path / group).mkdir()
        words = f"{PIPELINE} --group {group}"
        return launch_run(config(tmp_path / group, words, fault="pause", step=30), Silent())

    with (
        pytest.warns(SlowMemberWarning, match="rank 1 is slow: others have waited 2"),
        ThreadPoolExecutor(2) as pool,
    ):
        results = list(pool.map(paused, ("shm", "gloo")))
    assert [(each.status, each.weights_sha256) for each in results] == [("completed", faultless)] * 2


def test_eight_workers_of_a_mesh_on_few_cores_are_slow_but_never_wrong(tmp_path):
    words = PIPELINE.replace(
        "--strategy pipeline --workers 2", "--strategy pipeline+zero --mesh data=4,pipeline=2"
    )
    expected, found = (
        launch_run(config(tmp_path, f"{words}-{kind} --launcher {kind}"), Silent())
        for kind in ("threads", "processes")
    )
    assert (found.status, found.strategy, found.weights_sha256) == (
        "completed",
        "pipeline+zero",
        expected.weights_sha256,
    )
