"""A stage that dies or is stopped in the middle of a step: named, nothing hangs, and the run goes on."""

import re
import signal

import pytest
from launching import HERE, config

from shoal.errors import WorkerError
from shoal.events.folder import RunFolder
from shoal.launch.run import launch_run
from shoal.train import checkpoint
from shoal.train.observer import Silent

pytestmark = pytest.mark.timeout(300)  # processes that load torch: slow where the machine is busy
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


def assert_goes_on(folder, faultless):
    """Both checkpoints verify, and the resumed run ends with the weights of a run without a fault."""
    run = RunFolder(folder / "run")
    assert [checkpoint.verify(path).progress.step for path in sorted(run.checkpoints.iterdir())] == [3, 6]
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
