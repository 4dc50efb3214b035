"""The run folder under a launcher: deleted, in use by another run, saved when the terminal is closed."""

import os
import pty
import shutil
import signal
import subprocess
import time

import pytest
from launching import command, environment, flags, free_port, wait_until, workers_of

from shoal.events.folder import RunFolder
from shoal.training import checkpoint


def launched(folder, *words, more="--workers 2", **options):
    """A launcher in a process of its own, in the middle of a run of many steps."""
    run = flags(folder, f"{more} --epochs 20000 --name run", **{"slow": 0.005, **options})
    process = subprocess.Popen(
        command("train", *run, *words),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: any((folder / "run/checkpoints").glob("step-*[0-9]")))
    return process


def contents(folder):
    """Every file below a folder except those that a live run writes itself."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_a_run_whose_folder_is_deleted_ends_with_a_sentence_and_does_not_make_it_again(tmp_path):
    process = launched(tmp_path)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert f"{tmp_path / 'run'} was deleted or moved during the run" in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_a_killed_worker_is_the_error_also_without_a_folder_for_its_log(tmp_path):
    process = launched(tmp_path, "--checkpoint-every", "400")
    shutil.rmtree(tmp_path / "run")
    os.kill(workers_of(process.pid)[1], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL, said
    assert "was killed by SIGKILL" in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_a_refused_resume_writes_nothing_into_the_live_run(tmp_path):
    process = launched(tmp_path, "--checkpoint-every", "2", more="--workers 1 --strategy single")
    before = contents(tmp_path / "run")
    refused = subprocess.run(
        command(
            "train",
            "--resume",
            str(tmp_path / "run"),
            "--workers",
            "2",
            "--strategy",
            "naive",
            "--trust-code",
        ),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.poll() is None, "the live run goes on"
    assert refused.returncode == 2
    assert "is in use by another process" in refused.stderr
    assert contents(tmp_path / "run") == before
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


@pytest.mark.parametrize("workers", [1, 2])
def test_closing_the_terminal_saves_the_run(tmp_path, workers):
    strategy = "single" if workers == 1 else "naive"
    words = flags(tmp_path, f"--workers {workers} --epochs 20000 --name run", slow=0.005)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command()[0], [*command("train", *words), "--strategy", strategy], environment())
    folder = RunFolder(tmp_path / "run")
    wait_until(lambda: _drained(terminal) and any(folder.checkpoints.glob("step-*[0-9]")))
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    stopped = folder.read_result()
    assert (stopped["status"], stopped["stopped_by"]) == ("interrupted", signal.SIGHUP)
    assert checkpoint.latest(folder.checkpoints).progress.step == stopped["steps"]


def _drained(terminal):
    """Read what the run has drawn, so that it does not wait for a reader."""
    os.set_blocking(terminal, False)
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:
        return True
    return True


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_signal_also_says_how_to_resume(tmp_path, workers):
    strategy = "single" if workers == 1 else "naive"
    process = launched(tmp_path, "--strategy", strategy, more=f"--workers {workers}", slow=0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)  # the step in progress takes ten times as long
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert f"shoal train --resume {tmp_path / 'run'}" in said
    assert "Traceback" not in said


def test_a_second_signal_to_a_worker_that_was_started_by_hand_also_says_it(tmp_path):
    words = ["--world-size", "2", "--master", f"127.0.0.1:{free_port()}", "--strategy", "naive"]
    run = flags(tmp_path, "--epochs 200 --name run", slow=0.5)
    workers = [
        subprocess.Popen(
            command("train", *run, *words, "--rank", str(rank)),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        wait_until(lambda: any((tmp_path / "run/checkpoints").glob("step-*[0-9]")))
        workers[1].send_signal(signal.SIGINT)
        time.sleep(0.05)  # the step in progress takes ten times as long
        workers[1].send_signal(signal.SIGINT)
        _, said = workers[1].communicate(timeout=60)
        assert workers[1].returncode == 128 + signal.SIGINT
        assert f"shoal train --resume {tmp_path / 'run'}" in said
        assert "Traceback" not in said
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
