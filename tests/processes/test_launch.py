"""The same all-reduce program, started in every way there is."""

import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import command, environment, flags, wait_until, workers_of

from shoal.cli.main import main
from shoal.comm.rendezvous.store import listen

PROGRAM = str(Path(__file__).parents[2] / "examples" / "all_reduce.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SUMS = [f"rank {rank} of 2: [3.0, 3.0, 3.0, 3.0]" for rank in range(2)]


def output(words, cwd=None, **variables):
    done = subprocess.run(
        words, env=environment(**variables), cwd=cwd, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_as_processes():
    assert output(command("launch", "--workers", "2", PROGRAM)) == SUMS


def test_files_in_the_current_directory_take_no_worker_over(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("queue", "numpy", "shoal", "sitecustomize"):
        (here / f"{name}.py").write_text(f"open('taken by {name}', 'w')\nraise RuntimeError('taken over')")
    # Finds what the command `shoal` finds: not the current directory.
    safe = [sys.executable, "-P", "-m", "shoal"]
    train = ["train", *flags(tmp_path, "--workers 2 --quiet")]
    for words in (train, ["launch", "--workers", "2", PROGRAM]):
        done = subprocess.run(
            [*safe, *words],
            env=environment(),
            cwd=here,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert list(here.glob("taken*")) == []


def test_workers_have_the_launchers_import_path_in_its_order(tmp_path):
    shown = tmp_path / "shown.py"
    shown.write_text("import sys\nprint(sys.path[1:], sys.flags.safe_path)")
    program = (
        "import sys; sys.path[:0] = ['/first', '']; from shoal.cli.main import main; print(sys.path, True); "
    )
    program += f"main(['launch', '--workers', '2', {str(shown)!r}])"
    assert len(set(output([sys.executable, "-c", program], cwd=tmp_path))) == 1


def test_as_threads(capsys):
    assert main(["launch", "--workers", "2", "--launcher", "threads", PROGRAM]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == SUMS


BY_HAND = {"RANK": "{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
IN_A_JOB = {"SLURM_PROCID": "{rank}", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost,other"}


@pytest.mark.parametrize("place", [BY_HAND, IN_A_JOB], ids=["by hand", "in a job of Slurm"])
def test_each_process_with_its_variables(place):
    with listen("127.0.0.1", 0) as server:
        port = str(server.getsockname()[1])
    workers = [
        subprocess.Popen(
            [sys.executable, PROGRAM],
            env=environment(
                **{name: value.format(rank=rank) for name, value in place.items()}, MASTER_PORT=port
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    assert [worker.communicate(timeout=60)[0].strip() for worker in workers] == SUMS


def test_by_torchrun():
    assert output([*TORCHRUN, PROGRAM]) == SUMS


def test_torchruns_closing_summary_knows_what_happened(tmp_path):
    words = flags(tmp_path, "--quiet --name run", fault="raise")
    done = subprocess.run(
        [*TORCHRUN, "-m", "shoal", "train", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (tmp_path / "proof").exists()
    assert done.returncode != 0
    summary = done.stderr[done.stderr.index("Root Cause") :]
    assert "ValueError: no such column" in summary


def test_alone(capsys):
    runpy.run_path(PROGRAM, run_name="__main__")
    assert capsys.readouterr().out == "rank 0 of 1: [1.0, 1.0, 1.0, 1.0]\n"


@pytest.mark.parametrize("after_s", [0.0, 0.3])
def test_ctrl_c_while_workers_start_is_one_line(tmp_path, after_s):
    program = tmp_path / "program.py"
    program.write_text("import time\ntime.sleep(600)\n")  # it does not end by itself, however late the signal
    launcher = subprocess.Popen(
        command("launch", "--workers", "2", str(program)),
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: len(workers_of(launcher.pid)) == 2)
    time.sleep(after_s)
    launcher.send_signal(signal.SIGINT)
    _, said = launcher.communicate(timeout=30)
    assert launcher.returncode == 130
    assert said == "┌── error\n│ stopped by SIGINT\n└──\n"
    assert workers_of(launcher.pid) == []


def test_one_programs_failure_ends_all_and_shows_where(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, subprocess, sys, time, shoal\n"
        "group = shoal.join()\n"
        "if group.rank == 1:\n"
        "    raise LookupError('no such row')\n"
        "time.sleep(60)\n"
    )
    launcher = subprocess.Popen(
        command("launch", "--workers", "2", "--group", "gloo", str(program)),
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    _, said = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert "│ rank 1 of 2 failed: LookupError: no such row" in said
    assert f"│ at {program}:4" in said
    assert said.count("Traceback") == 1
    assert workers_of(launcher.pid) == []
