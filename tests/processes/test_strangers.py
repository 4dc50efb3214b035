"""A stranger who reaches the store and sockets of a run changes nothing; the secret's path through every launcher."""

import contextlib
import os
import subprocess
import sys
import threading
from ipaddress import ip_address
from pathlib import Path

import pytest
import torch.distributed as dist
from attacks import Attack
from launching import HERE, config, environment, listening_addresses, wait_until, workers_of
from nursery import Nursery

from shoal.cli.main import main
from shoal.comm.rendezvous.store import listen
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

SECRET = "correct horse battery staple"


class Stranger:
    """A program of another user that reaches the loopback addresses of this machine, but has no secret."""

    def __init__(self, proof):
        self._proof, self._over = proof, threading.Event()
        self._before = set(listening_addresses([os.getpid()]))
        self._thread = threading.Thread(target=self._run)
        self.done = {}
        self.listeners, self.visible = set(), b""

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(30)

    def _run(self):
        with contextlib.suppress(dist.DistNetworkError):  # the store ends with the run
            self._attack()

    def _attack(self):
        wait_until(lambda: len(workers_of(os.getpid())) == 2)
        pids = workers_of(os.getpid())
        (mine,) = set(listening_addresses([os.getpid()])) - self._before
        port = int(mine.rpartition(":")[2])
        attack = Attack("127.0.0.1", port)
        self.done = attack.done
        wait_until(self._proof.exists)  # the members are connected: from here on one waits for the other
        self.visible = b"".join(
            Path(f"/proc/{pid}/{name}").read_bytes() for pid in pids for name in ("cmdline", "environ")
        )
        self.listeners = set(listening_addresses([os.getpid(), *pids]))
        ports = {int(each.rpartition(":")[2]) for each in self.listeners}
        attack.run([("127.0.0.1", port) for port in ports], self._over.wait)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A run over gloo in which rank 1 pauses for 4 s, while rank 0 asks the store for it and a stranger attacks."""
    folder = tmp_path_factory.mktemp("attacked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("SHOAL_SECRET", SECRET)
        with Stranger(folder / "proof") as stranger:
            run = config(folder, "--workers 2 --group gloo", fault="pause")
            return stranger, launch_run(run, Silent())


def test_a_stranger_who_forges_overwrites_replays_and_sends_huge_sizes_changes_nothing(
    attacked, tmp_path, monkeypatch
):
    stranger, result = attacked
    assert min(stranger.done.values()) > 20
    monkeypatch.syspath_prepend(str(HERE))
    unharmed = launch_run(config(tmp_path, "--workers 2 --launcher threads"), Silent())
    assert result.weights_sha256 == unharmed.weights_sha256


def test_the_kernel_knows_of_listeners_on_loopback_alone(attacked):
    stranger, _ = attacked
    assert len(stranger.listeners) >= 3, "the store, and gloo in both workers"
    assert all(ip_address(each.rpartition(":")[0]).is_loopback for each in stranger.listeners), (
        stranger.listeners
    )


def test_no_command_line_and_no_environment_of_a_worker_shows_a_secret(attacked):
    stranger, _ = attacked
    assert b"OMP_NUM_THREADS" in stranger.visible
    assert b"SHOAL_SECRET" not in stranger.visible
    assert SECRET.encode() not in stranger.visible


# The secret's path through every launcher.

SHOWS = """
import os, sys, torch, shoal
from shoal.comm.rendezvous.secret import run_secret
group = shoal.join(timeout_s=20)
total = torch.ones(1)
group.all_reduce(total).wait()
secret = run_secret()
found = "none" if not secret else "given" if secret == b"correct horse battery staple" else "drawn"
sys.stdout.write(f"{total.item():g} {found} {'SHOAL_SECRET' in os.environ} {group.kind}\\n")
sys.stdout.flush()
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "shows.py"
    path.write_text(SHOWS)
    return str(path)


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "run.secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return str(path)


def test_our_launcher_draws_a_secret_that_no_environment_shows(program, capfd, monkeypatch):
    monkeypatch.setenv("SHOAL_SECRET", SECRET)
    assert main(["launch", "--workers", "2", program]) == 0
    assert capfd.readouterr().out.splitlines() == ["2 drawn False shm"] * 2


def test_threads_need_none(program, capsys):
    assert main(["launch", "--workers", "2", "--launcher", "threads", program]) == 0
    assert capsys.readouterr().out.splitlines() == ["2 none False threads"] * 2


def test_torchrun_passes_the_name_of_the_file_on(program, secret_file):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program]
    variables = environment(SHOAL_SECRET_FILE=secret_file)
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["2 given False shm"] * 2, done.stderr


def test_by_hand_each_rank_is_given_the_same_secret(tmp_path, secret_file):
    """One by a file, one by a variable; a third started by mistake with another one does not disturb them."""
    nursery = Nursery(environment())
    with listen("127.0.0.1", 0) as server:
        port = str(server.getsockname()[1])
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    given = [
        {"RANK": "0", "SHOAL_SECRET_FILE": secret_file},
        {"RANK": "1", "SHOAL_SECRET": "the secret of others"},
        {"RANK": "1", "SHOAL_SECRET": SECRET},
    ]
    text = SHOWS.replace(
        "timeout_s=20", "timeout_s=1 if 'others' in os.environ.get('SHOAL_SECRET', '') else 20"
    )
    first = nursery.start(text, tmp_path, "first", **place, **given[0])
    strange = nursery.start(text, tmp_path, "strange", **place, **given[1])
    _, said = strange.ended()
    assert "rank 0 is missing: 1 of 2 workers joined within 1 s" in said
    assert (
        "Rank 0 has another secret, or none. Give every rank the same SHOAL_SECRET_FILE or SHOAL_SECRET."
        in said
    )
    second = nursery.start(text, tmp_path, "second", **place, **given[2])
    assert first.ended()[0] == "2 given False shm\n"
    assert second.ended()[0] == "2 given True shm\n"
    nursery.close()
