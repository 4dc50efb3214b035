"""`shoal launch --hosts` and `--launcher netns`: workers on several machines, which are virtual nodes here."""

import json
import os
import signal
from pathlib import Path

import pytest
from launching import wait_until
from nodes import needs_nodes, nodes, processes_in, shoal

from shoal.cli.main import main
from shoal.config.conditions import Link
from shoal.config.read import read
from shoal.config.sections.launch import LaunchConfig
from shoal.errors import ConfigError
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

pytestmark = needs_nodes

SHOWS = """
import os, sys, torch, shoal
from shoal.comm.rendezvous.secret import run_secret
group = shoal.join()
total = torch.ones(1)
group.all_reduce(total).wait()
place = [os.uname().nodename, group.rank, os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], os.getcwd()]
print(*place, f"{total.item():g}", group.kind, len(run_secret()), sys.argv[1:])
print("to standard error", file=sys.stderr)
"""
MISBEHAVES = """
import os, signal, sys, time, shoal
group = shoal.join()
print("joined", flush=True)
if group.rank == 2 and sys.argv[1] == "raises":
    raise ValueError("this rank cannot")
if group.rank == 2 and sys.argv[1] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
group.barrier().wait()
time.sleep(1000)
"""
STRANGE = ["a b", "it's", '"$HOME"', "*", "--x=é", ""]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with nodes(2, tmp_path_factory.mktemp("two")) as made:
        yield made


@pytest.fixture
def programs(tmp_path):
    (tmp_path / "shows.py").write_text(SHOWS)
    (tmp_path / "misbehaves.py").write_text(MISBEHAVES)
    return tmp_path


def test_a_program_runs_on_every_machine(two, programs, capsys, monkeypatch):
    """Its place, its arguments, its working directory, its secret, and its output with a prefix."""
    monkeypatch.chdir(programs)
    code = main(["launch", *two[1], "--workers", "2", "shows.py", *STRANGE])
    output, errors = capsys.readouterr()
    assert code == 0, errors
    shown = [
        f"[node0{rank // 2 + 1} rank {rank}] node0{rank // 2 + 1} {rank} {rank % 2} 2 {programs} 4 gloo 32 {STRANGE}"
        for rank in range(4)
    ]
    assert sorted(output.splitlines()) == shown
    assert "[node02 rank 3] to standard error" in errors.splitlines()


@pytest.mark.parametrize(
    ("how", "code", "named"),
    [
        ("raises", 1, "rank 2 of 3 failed: ValueError: this rank cannot"),
        pytest.param("dies", 137, "rank 2 of 3 was killed by SIGKILL", marks=pytest.mark.long),
    ],
)
def test_the_first_failure_ends_all_and_is_named_with_its_machine(programs, capsys, how, code, named):
    """Three machines."""
    with nodes(3, programs) as (cluster, hosts):
        folder = ["--folder", str(programs)]
        assert main(["launch", *hosts, *folder, "--workers", "1", "misbehaves.py", how]) == code
        assert processes_in(cluster) == {}
    box = capsys.readouterr().err.rpartition("┌── error")[2]
    assert named in box
    assert "node03" in box


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_on_any_machine_when_the_launcher_is_stopped(two, programs, number):
    cluster, hosts = two
    launcher = shoal("launch", *hosts, "--workers", "2", "misbehaves.py", "waits", cwd=programs)
    for _ in range(4):
        assert launcher.stdout.readline().endswith("joined\n")
    assert len(processes_in(cluster)) >= 6
    launcher.send_signal(number)
    launcher.communicate()
    assert launcher.returncode == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: not processes_in(cluster))


@pytest.mark.long
def test_a_lost_connection_ends_all(two, programs):
    cluster, hosts = two
    launcher = shoal("launch", *hosts, "--workers", "1", "misbehaves.py", "waits", cwd=programs)
    for _ in range(2):
        launcher.stdout.readline()
    ssh = [
        int(pid)
        for pid in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        if b"enter.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(ssh[1], signal.SIGKILL)
    _, errors = launcher.communicate()
    assert launcher.returncode == 137
    assert "rank 1 of 2" in errors
    wait_until(lambda: not processes_in(cluster))


@pytest.mark.parametrize("code", [255, 3])
def test_a_machine_that_cannot_be_reached_is_named(tmp_path, capsys, code):
    ssh = tmp_path / "no-ssh"
    ssh.write_text(f"#!/bin/sh\necho a greeting\necho no route to it >&2\nexit {code}\n")
    ssh.chmod(0o755)
    assert main(["launch", "--hosts", "far", "--ssh", str(ssh), "--workers", "1", "shows.py"]) == 2
    box = capsys.readouterr().err.rpartition("┌── error")[2]
    assert all(part in box for part in ("far", f"code {code}", "no route to it"))


# Training.

TRAIN = (
    "--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --batch-size 32 --epochs 2 --threads 1 "
    "--device cpu --model mlp --model.hidden 8 --workers 2"
)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["ddp", "zero --strategy.stage 3", "pipeline", "local", "server"])
def test_virtual_machines_train_the_weights_of_one_machine(strategy, tmp_path, launching_here):
    ways = ("--launcher netns --nodes 2 --link all:1gbit", "--launcher threads")
    words = f"{TRAIN} --strategy {strategy} --runs-dir {tmp_path}"
    runs = [launch_run(read(None, f"{words} {way}".split()), Silent()) for way in ways]
    assert runs[0].weights_sha256 == runs[1].weights_sha256


@pytest.mark.long
def test_our_own_command_runs_on_every_machine(two, tmp_path, capsys, launching_here):
    """Each rank is the command itself, as under torchrun; rank 0 writes the result."""
    words = [*TRAIN.split()[:-2], "--strategy", "ddp", "--runs-dir", str(tmp_path), "--json"]
    assert main(["launch", *two[1], "--workers", "1", "--", "shoal", "train", *words, "--name", "far"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "weights_sha256" in line)
    result = json.loads(line.removeprefix("[node01 rank 0] "))
    threads = launch_run(read(None, [*TRAIN.split(), "--launcher", "threads", *words[-5:-1]]), Silent())
    assert result["weights_sha256"] == threads.weights_sha256


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 2},
        {"nodes": 3, "launcher": "netns"},
        {"launcher": "netns", "link": (Link.from_text("0-1:1gbit"),)},
    ],
)
def test_settings_that_virtual_machines_cannot_have_are_refused(changes):
    with pytest.raises(ConfigError):
        LaunchConfig(workers=2, **changes)
