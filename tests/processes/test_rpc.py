"""`rpc` as a run: a stage that dies, stops or fails is named, nothing hangs, and the run resumes exactly."""

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress

import pytest
from launching import (
    HERE,
    command,
    config,
    environment,
    flags,
    listening_addresses,
    wait_until,
    workers_of,
)

from shoal.comm.group import SlowMemberWarning
from shoal.errors import WorkerError
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

NOTICED_S = 30.0
"""A death is seen by looking, long before the 60 s of silence after which a member is given up."""
STAGED = "--model misbehaving:staged --strategy rpc --workers 3 --name run"


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    assert workers_of(os.getpid()) == [], "nothing may be left behind"


@pytest.fixture(scope="module")
def faultless(tmp_path_factory):
    """The weights of the same run on one machine."""
    folder = tmp_path_factory.mktemp("faultless")
    single = f"{STAGED} --strategy single --workers 1"
    return launch_run(config(folder, single), Silent()).weights_sha256


def failure(folder, more="", **options):
    """What the launcher raises; the fault must have fired, and the end have followed soon."""
    with pytest.raises(WorkerError) as caught:
        launch_run(config(folder, f"{STAGED} {more}", **options), Silent())
    fired_at = (folder / "proof").stat().st_mtime
    return caught.value, time.time() - fired_at


def test_a_stage_that_is_killed_is_named_and_the_run_goes_on_to_one_machines_weights(tmp_path, faultless):
    error, seconds = failure(tmp_path, rank=2, fault="SIGKILL", where="backward")
    assert error.message == "rank 2 of 3 was killed by SIGKILL"
    assert "Resume from the last checkpoint" in error.hint
    assert seconds < NOTICED_S
    log = (tmp_path / "run/worker.rank0.log").read_text()
    # The driver's own words, or those of rank 1, if that noticed first.
    assert re.search("rank 2 died before the (backward pass|end) of step 7 since the start", log)
    assert "it held 4 to 5" in log
    folder = RunFolder(tmp_path / "run")
    resumed = launch_run(config(tmp_path, STAGED), Silent(), folder)
    assert (resumed.status, resumed.weights_sha256) == ("completed", faultless)
    assert resumed.bytes_sent > 0
    steps = [event for event in read_events(folder.events(1)) if event["event"] == "step"]
    assert sorted({event["step"] for event in steps}) == list(range(12))
    assert all(event["totals_ns"]["compute"] > 0 for event in steps)


def test_an_error_in_a_stage_is_shown_as_its_own(tmp_path):
    error, seconds = failure(tmp_path, "--strategy.microbatches 4", rank=1, fault="raise")
    assert "rank 1 of 3 failed" in error.message or "rank 1" in str(error)
    assert "no such column: Größe" in str(error)
    assert "misbehaving.py" in str(error)
    assert seconds < NOTICED_S


def test_an_error_in_the_backward_pass_of_a_stage_names_its_rank(tmp_path):
    error, _ = failure(tmp_path, rank=2, fault="raise", where="backward")
    assert error.message.startswith("rank 2 failed before the backward pass of step 7 since the start")
    assert "With --strategy single the traceback shows it." in error.hint


def test_a_stage_that_is_stopped_is_named(tmp_path):
    error, _ = failure(tmp_path, "--launch.timeout 2", rank=1, fault="stop")
    assert "rank 1" in error.message
    assert "stopped (SIGSTOP)" in error.message


def test_a_stage_that_computes_without_end_is_named_with_its_stack(tmp_path):
    error, _ = failure(tmp_path, "--launch.timeout 4", rank=2, fault="loop", where="backward")
    assert "rank 2 has not reached" in error.message
    assert "step 7 since the start: it is alive, but has made no progress" in error.message
    assert "in loop_for_ever" in str(error), str(error)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:rank 0 (is slow|has not reached)")
def test_a_driver_whose_loss_never_ends_is_named(tmp_path):
    more = f"{STAGED} --launch.timeout 4 --loss misbehaving:looping_loss"
    with pytest.raises(WorkerError, match="rank 0 has not reached") as caught:
        launch_run(config(tmp_path, more), Silent())
    assert "in loop_for_ever" in caught.value.hint


@pytest.mark.long
def test_a_stranger_at_the_ports_of_a_run_changes_nothing(tmp_path, faultless):
    """While the workers connect, torch aborts at such bytes (docs/en/security.md); later, none arrive."""
    words = flags(tmp_path, STAGED, fault="none", slow=0.1, step=1)
    with subprocess.Popen(command("train", *words), env=environment(), stderr=subprocess.PIPE) as process:
        wait_until((tmp_path / "proof").exists)
        ports = [int(each.rpartition(":")[2]) for each in listening_addresses(workers_of(process.pid))]
        reached = 0
        for port in ports:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
                reached += 1
        assert len(ports) > reached, "at least the agents listen, and are not reached"
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors.decode()
    assert RunFolder(tmp_path / "run").read_result()["weights_sha256"] == faultless


def test_a_pause_is_survived(tmp_path, faultless):
    with pytest.warns(SlowMemberWarning, match="rank 1 is slow: others have waited 2"):
        result = launch_run(config(tmp_path, STAGED, rank=1, fault="pause"), Silent())
    assert (tmp_path / "proof").exists()
    assert result.weights_sha256 == faultless


def test_ctrl_c_stops_after_a_step_and_resume_goes_on(tmp_path):
    words = flags(tmp_path, f"{STAGED} --epochs 2000", fault="none", slow=0.02)
    with subprocess.Popen(command("train", *words), env=environment(), stderr=subprocess.PIPE) as process:
        wait_until(lambda: (tmp_path / "run/checkpoints/step-000003").exists())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, errors.decode()
    assert b"resume with" in errors
    folder = RunFolder(tmp_path / "run")
    more = f"{STAGED} --epochs 2000 --steps {folder.read_result()['steps'] + 3}"
    resumed = launch_run(config(tmp_path, more), Silent(), folder)
    (tmp_path / "single").mkdir()
    single = launch_run(config(tmp_path / "single", f"{more} --strategy single --workers 1"), Silent())
    assert (resumed.status, resumed.weights_sha256) == ("completed", single.weights_sha256)
