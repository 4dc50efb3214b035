"""Faults of workers under the launcher: named, nothing left behind, and the run can go on. Each proves that it fired.

The group's own view of the same faults is in `test_group_faults.py`.
"""

import os
import re
import signal
import subprocess
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from launching import (
    command,
    config,
    environment,
    flags,
    free_port,
    orphan_killers_of,
    state_of,
    wait_until,
    workers_of,
)
from throttling import throttled

from shoal.cli.main import main
from shoal.comm.group import SlowMemberWarning
from shoal.errors import WorkerError
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.launch.run import launch_run
from shoal.training import checkpoint
from shoal.training.observer import Silent

# Many processes load torch, which takes long where the machine is busy.
pytestmark = pytest.mark.usefixtures("launching_here")
NOTICED_S = 30.0
"""A death is seen by looking: long before the 60 s of silence after which a member is given up."""


@pytest.fixture(scope="module")
def faultless(tmp_path_factory):
    """The weights of the same run without a fault."""
    folder = tmp_path_factory.mktemp("faultless")
    return launch_run(config(folder, "--workers 2 --launcher threads"), Silent()).weights_sha256


def failure(folder, more, **options):
    """What the launcher raises; the fault must have fired, and the end have followed soon."""
    with pytest.raises(WorkerError) as caught:
        launch_run(config(folder, f"--workers 2 --name run {more}", **options), Silent())
    fired_at = (folder / "proof").stat().st_mtime
    assert not (folder / "run" / "result.json").exists(), "a run that failed has no closing record"
    return caught.value, time.time() - fired_at


# Case 1: death of a worker in mid-step, while the other is in a collective with it.


def test_after_a_kill_the_run_goes_on_to_the_same_weights(tmp_path, faultless):
    error, seconds = failure(tmp_path, "--group shm", fault="SIGKILL")
    assert error.message == "rank 1 of 2 was killed by SIGKILL"
    assert f"Resume from the last checkpoint: shoal train --resume {tmp_path / 'run'}" in error.hint
    assert error.exit_code == 128 + signal.SIGKILL
    assert seconds < NOTICED_S
    folder = RunFolder(tmp_path / "run")
    saved = [checkpoint.verify(path).progress.step for path in sorted(folder.checkpoints.iterdir())]
    assert saved == [3, 6]
    assert "rank 1 died" in (tmp_path / "run/worker.rank0.log").read_text()

    descriptors = os.listdir("/proc/self/fd")
    resumed = launch_run(config(tmp_path, "--workers 2 --name run"), Silent(), folder)
    assert (resumed.status, resumed.weights_sha256) == ("completed", faultless)
    attempts = ledger(folder.events(0))
    assert [step for attempt in attempts for step, _ in attempt] == list(range(12))
    assert sum(samples for attempt in attempts for _, samples in attempt) == 3 * 100
    assert len(os.listdir("/proc/self/fd")) == len(descriptors), "a launch leaves no descriptor open"


def ledger(path):
    """(step, samples) of every attempt, less what a later attempt did again."""
    attempts = []
    for event in read_events(path):
        if event["event"] == "start":
            attempts.append([])
            for earlier in attempts[:-1]:
                earlier[:] = [entry for entry in earlier if entry[0] < event["step"]]
        elif event["event"] == "step":
            attempts[-1].append((event["step"], event["samples"]))
    assert len(attempts) == 2
    return attempts


def test_a_crash_in_native_code_shows_where_python_was(tmp_path):
    error, seconds = failure(tmp_path, "--group gloo", fault="SIGSEGV")
    assert error.message == "rank 1 of 2 was killed by SIGSEGV"
    assert re.search(r'misbehaving.py", line \d+ in forward', error.hint)
    assert error.exit_code == 128 + signal.SIGSEGV
    assert seconds < NOTICED_S


# Cases 1 and 6: the exit code is kept; rank 0, where others would have the store, is named like any other.


def test_rank_0_that_just_exits_is_named_and_its_code_kept(tmp_path):
    error, seconds = failure(tmp_path, "--group gloo", fault="exit", rank=0)
    assert error.message == "rank 0 of 2 exited with code 3 before its work was done"
    assert error.exit_code == 3
    assert seconds < NOTICED_S


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ("shm", r"rank 0 died before all_reduce #\d+ \(process \d+ has ended\)"),
        (
            "gloo",
            r"rank 0 died before all_reduce #\d+ \(process \d+ has ended; with it went the store where workers meet\)",
        ),
    ],
)
def test_by_hand_the_death_of_rank_0_is_named_as_such(tmp_path, group, sentence):
    words = ["--world-size", "2", "--master", f"127.0.0.1:{free_port()}", "--group", group, "--name", "run"]
    workers = [
        subprocess.Popen(
            command("train", *flags(tmp_path, fault="SIGKILL", rank=0), *words, "--rank", str(rank)),
            env=environment(RANK=str(rank)) | {"MASTER_ADDR": "x", "MASTER_PORT": "1", "WORLD_SIZE": "9"},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    _, said = workers[1].communicate(timeout=60)
    assert workers[0].wait(timeout=10) == -signal.SIGKILL
    assert (tmp_path / "proof").exists()
    assert workers[1].returncode == 2
    assert re.search(sentence, said), said
    assert "Traceback" not in said
    assert "frame #" not in said, "no stack of C++"


# Case 2: a forked child that holds sockets and pipe of the dead.


def test_a_forked_child_hides_no_death_and_is_ended_too(tmp_path):
    error, seconds = failure(tmp_path, "--group gloo", fault="fork")
    assert error.message == "rank 1 of 2 was killed by SIGKILL"
    assert seconds < NOTICED_S


# Cases 3 and 4: stopped, endless and merely slow, all at once since all of them take their time.


def test_stopped_stuck_and_slow_are_distinguished(tmp_path, faultless):
    def outcome(fault, group):
        folder = tmp_path / f"{fault}-{group}"
        folder.mkdir()
        try:
            return launch_run(
                config(folder, f"--workers 2 --group {group} --launch.timeout 10", fault=fault), Silent()
            )
        except WorkerError as error:
            return error

    cases = [(fault, group) for fault in ("stop", "loop", "pause") for group in ("shm", "gloo")]
    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(len(cases)) as pool:
        warnings.simplefilter("always")
        outcomes = dict(zip(cases, pool.map(lambda case: outcome(*case), cases), strict=True))
    for fault, group in cases:
        assert (tmp_path / f"{fault}-{group}" / "proof").exists(), "the fault must have happened"

    for group in ("shm", "gloo"):
        stopped = outcomes["stop", group]
        assert re.match(r"rank 1 has not reached all_reduce #\d+: it is stopped \(SIGSTOP\)", stopped.message)
        assert "Seen by rank 0 of 2." in stopped.hint
        stuck = outcomes["loop", group]
        assert "rank 1 has not reached all_reduce #" in stuck.message
        assert "alive, but has made no progress" in stuck.message
        assert "in loop_for_ever" in stuck.hint
        assert outcomes["pause", group].weights_sha256 == faultless
    slow = [str(each.message) for each in caught if issubclass(each.category, SlowMemberWarning)]
    assert any(text.startswith("rank 1 is slow: others have waited 2") for text in slow), slow


def test_a_worker_with_5_percent_of_a_processor_is_slow_but_never_given_up(tmp_path, faultless):
    """By a quota of the system's where tests may set one, else by stopping and continuing the worker in turn."""

    def outcome(group):
        folder = tmp_path / group
        folder.mkdir()
        with ThreadPoolExecutor(1) as pool:
            settings = config(folder, f"--workers 2 --group {group} --launch.timeout 10", fault="compute")
            run = pool.submit(launch_run, settings, Silent())
            wait_until((folder / "proof").exists)
            wait_until((folder / "proof").read_text)
            with throttled(int((folder / "proof").read_text())) as held_back:
                wait_until(lambda: held_back() > 120 or run.done())
                assert held_back() > 80, (
                    "the fault must have happened: 80 tenths of a second without a processor"
                )
            return run.result()

    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(2) as pool:
        warnings.simplefilter("always")
        results = dict(zip(("shm", "gloo"), pool.map(outcome, ("shm", "gloo")), strict=True))
    assert {name: (each.status, each.weights_sha256) for name, each in results.items()} == {
        "shm": ("completed", faultless),
        "gloo": ("completed", faultless),
    }
    slow = [str(each.message) for each in caught if issubclass(each.category, SlowMemberWarning)]
    assert len(slow) == 2, "one warning in each run"
    assert all(text.startswith("rank 1 is slow: others have waited 2") for text in slow), slow


def test_more_workers_than_cores_are_slow_but_never_wrong(tmp_path):
    many = launch_run(config(tmp_path, "--workers 8", slow=0.01), Silent())
    threads = launch_run(config(tmp_path, "--workers 8 --launcher threads"), Silent())
    assert (many.status, many.weights_sha256) == ("completed", threads.weights_sha256)


# Case 5: the launcher is killed, or asked to stop.


def launched(folder, *words, **options):
    """A launcher in a process of its own, in the middle of a run of 240 steps, 12 s at least: a signal ends it."""
    run = flags(folder, "--workers 2 --epochs 60 --name run", slow=0.05, **options)
    process = subprocess.Popen(
        command("train", *run, *words),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((folder / "proof").exists)
    workers_of(process.pid)  # knows them from now on, also when the launcher is gone
    return process


def test_killing_the_launcher_leaves_no_orphan(tmp_path):
    process = launched(tmp_path, fault="child")
    wait_until(lambda: len(workers_of(process.pid)) == 3)  # two workers, and a child of one of them
    process.kill()
    process.communicate(timeout=10)
    wait_until(lambda: not workers_of(process.pid) and not orphan_killers_of(process.pid))


@pytest.mark.parametrize(("launcher", "number"), [("processes", signal.SIGINT), ("threads", signal.SIGTERM)])
def test_a_stopped_run_resumes_to_the_weights_of_an_uninterrupted_one(tmp_path, launcher, number):
    process = launched(tmp_path, "--launcher", launcher, rank=0)
    if launcher == "processes":
        stop_and_continue(process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"resume with: shoal train --resume {tmp_path / 'run'}" in said
    assert workers_of(process.pid) == []
    stopped = RunFolder(tmp_path / "run").read_result()
    assert stopped["status"] == "interrupted"
    assert 8 <= stopped["steps"] < 240

    more = f"--workers 2 --launcher {launcher} --name run --epochs 60"
    (tmp_path / "whole").mkdir()
    resumed = launch_run(config(tmp_path, more), Silent(), RunFolder(tmp_path / "run"))
    whole = launch_run(config(tmp_path / "whole", more.replace("processes", "threads")), Silent())
    assert (resumed.steps, resumed.weights_sha256) == (whole.steps, whole.weights_sha256)


def stop_and_continue(process):
    """Ctrl-Z stops the launcher and all workers; they all go on together."""
    everybody = [process.pid, *workers_of(process.pid)]
    assert len(everybody) == 3
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: {state_of(pid) for pid in everybody} == {"T"})
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: "T" not in {state_of(pid) for pid in everybody})


def test_a_second_ctrl_c_ends_even_a_worker_that_will_never_stop(tmp_path):
    process = launched(tmp_path, fault="loop")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=NOTICED_S)
    assert process.returncode == 130
    assert "interrupted" in said
    assert workers_of(process.pid) == []


# Case 12: workers that differ.


def test_another_model_on_one_rank_is_refused_before_the_first_step(tmp_path):
    settings = config(tmp_path, "--workers 2 --launcher threads --name run --model misbehaving:lopsided")
    with pytest.raises(WorkerError) as caught:
        launch_run(settings, Silent())
    assert (tmp_path / "proof").exists()
    assert "rank 1 has another model: parameter 0 is first.weight (9, 16) float32; " in caught.value.message
    assert "on rank 0 it is first.weight (8, 16) float32" in caught.value.message
    assert not (tmp_path / "run").exists()


# A user's own mistake.


def test_an_exception_in_the_users_code_is_shown_in_one_box(tmp_path, capsys):
    words = flags(tmp_path, "--workers 2 --quiet --name run", fault="raise")
    assert main(["train", *words]) == 1
    assert (tmp_path / "proof").exists()
    said = capsys.readouterr().err
    box = said[said.index("┌") :]
    assert "│ rank 1 of 2 failed: ValueError: no such column: Größe\n" in box
    assert re.search(r"│ at \S+misbehaving.py:\d+\n", box)
    assert said.count("Traceback (most recent call last)") == 1
    assert 'raise ValueError("no such column: Größe")' in said
