"""A parameter server as processes: a killed server or worker is named, nothing is lost or applied twice."""

import signal
import subprocess
import time

import pytest
from launching import command, config, environment, flags, wait_until

from shoal.errors import WorkerError
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

# Many processes load torch, which takes long where the machine is busy.
pytestmark = pytest.mark.usefixtures("launching_here")
NOTICED_S = 30.0
"""A death is seen by looking, long before the 60 s of silence after which a member is given up."""
SERVER = "--strategy server --workers 2 --name run"


def failure(folder, more, **options):
    """What the launcher raises; the fault must have fired, and the end have followed soon."""
    with pytest.raises(WorkerError) as caught:
        launch_run(config(folder, f"{SERVER} {more}", **options), Silent())
    return caught.value, time.time() - (folder / "proof").stat().st_mtime


def test_a_server_killed_between_apply_and_acknowledge_loses_and_repeats_nothing(tmp_path):
    dying = f"--optimizer misbehaving:dying_adam --optimizer.proof {tmp_path / 'proof'}"
    error, seconds = failure(tmp_path, dying, rank=9)
    assert error.message == "rank 2 of 3 was killed by SIGKILL"
    assert "Rank 2 was parameter server 0 of 1." in error.hint
    assert seconds < NOTICED_S
    log = (tmp_path / "run/worker.rank0.log").read_text()
    assert "rank 2 died" in log, "the workers name it, too"
    folder = RunFolder(tmp_path / "run")
    resumed = launch_run(config(tmp_path, f"{SERVER} {dying}", rank=9), Silent(), folder)
    (tmp_path / "other").mkdir()
    faultless = launch_run(
        config(tmp_path / "other", f"{SERVER} {dying} --launcher threads", rank=9), Silent()
    )
    assert (resumed.status, resumed.weights_sha256) == ("completed", faultless.weights_sha256)
    updates = [event for event in read_events(folder.events(2)) if event["event"] == "update"]
    assert {(event["rank"], event["step"]) for event in updates} == {
        (r, s) for r in range(2) for s in range(12)
    }


def test_a_killed_worker_is_named(tmp_path):
    error, seconds = failure(tmp_path, "--strategy.mode asp", rank=1, fault="SIGKILL")
    assert error.message == "rank 1 of 3 was killed by SIGKILL"
    assert seconds < NOTICED_S
    assert "Resume from the last checkpoint" in error.hint


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:rank 1 (is slow|has not reached)")
@pytest.mark.parametrize("more", ["--group shm", "--group gloo", "--strategy.servers 2 --workers 3"])
def test_a_worker_in_an_endless_loop_is_named_and_not_one_that_waits_for_it(tmp_path, more):
    error, _ = failure(tmp_path, f"--launch.timeout 4 {more}", rank=1, fault="loop")
    assert error.message.startswith("rank 1 has not reached")
    assert "in loop_for_ever" in error.hint


@pytest.mark.filterwarnings("ignore:rank .* is slow")
@pytest.mark.parametrize("mode", ["asp", pytest.param("ssp", marks=pytest.mark.long)])
def test_the_others_continue_without_a_killed_worker_and_take_its_share_of_the_data(tmp_path, mode):
    more = f"--strategy.mode {mode} --strategy.on_lost continue --workers 3"
    with pytest.warns(UserWarning, match="rank 1 of 4 was killed by SIGKILL: the others continue"):
        result = launch_run(
            config(tmp_path, f"{SERVER} {more}", rank=1, fault="SIGKILL", step=4, slow=0.01), Silent()
        )
    assert (tmp_path / "proof").exists()
    assert (result.status, result.workers, result.steps) == ("completed", 3, 12)
    ((loss,), folder) = result.server["lost"], RunFolder(tmp_path / "run")
    events = list(read_events(folder.events(3)))
    updates = [event for event in events if event["event"] == "update"]
    assert sorted((event["step"], event["share"]) for event in updates) == [
        (step, share) for step in range(12) for share in range(3)
    ], "every share of every step counts once"
    assert sum(event["rank"] == 1 for event in updates) == 3, "it died in its fourth step"
    (lost,) = (event for event in events if event["event"] == "lost")
    assert (lost["rank"], lost["version"]) == (loss["rank"], loss["updates"]) == (1, lost["version"])
    more = more.replace("continue", "stop") + " --epochs 4"
    resumed = launch_run(config(tmp_path, f"{SERVER} {more}"), Silent(), folder)
    assert (resumed.status, resumed.steps, resumed.server["lost"]) == ("completed", 16, []), (
        "with all workers"
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:rank .* is slow")
def test_and_without_a_second_one_that_is_killed_after_they_have_met(tmp_path):
    more = "--strategy.mode asp --strategy.on_lost continue --workers 4 --model misbehaving:two_deaths --epochs 6"
    with pytest.warns(UserWarning, match=r"rank [12] of 5 was killed by SIGKILL: the others continue"):
        result = launch_run(config(tmp_path, f"{SERVER} {more}", slow=0.01), Silent())
    assert (result.status, result.steps) == ("completed", 24)
    assert [loss["rank"] for loss in result.server["lost"]] == [1, 2]
    events = list(read_events(RunFolder(tmp_path / "run").events(4)))
    assert [event["rank"] for event in events if event["event"] == "lost"] == [1, 2], "each is lost once"
    assert sorted((event["step"], event["share"]) for event in events if event["event"] == "update") == [
        (step, share) for step in range(24) for share in range(4)
    ], "every share of every step counts once"


@pytest.mark.parametrize("mode", ["asp", pytest.param("hogwild", marks=pytest.mark.long)])
def test_a_signal_stops_all_after_the_same_step_and_the_run_is_resumed(tmp_path, mode):
    run = flags(tmp_path, f"{SERVER} --strategy.mode {mode}", slow=0.02, fault="none", step=2)
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
    assert ends[0]["step"] == ends[1]["step"] > 1
    resumed = launch_run(
        config(tmp_path, f"{SERVER} --strategy.mode {mode} --epochs 200 --steps {ends[0]['step'] + 3}"),
        Silent(),
        RunFolder(tmp_path / "run"),
    )
    assert (resumed.status, resumed.steps) == ("completed", ends[0]["step"] + 3)


@pytest.mark.long
def test_over_a_network_it_is_the_same(tmp_path):
    """Messages from anyone over gloo, in place of shared memory."""
    shm, gloo = (
        launch_run(config(tmp_path, f"--strategy server --workers 2 --name {kind} --group {kind}"), Silent())
        for kind in ("shm", "gloo")
    )
    assert shm.weights_sha256 == gloo.weights_sha256
