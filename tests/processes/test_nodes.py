"""Runs on virtual machines: bytes on their network cards, and a stranger on the same network."""

import json
import sys
import threading
from pathlib import Path

import pytest
from launching import HERE, config, environment, listening_addresses, rank_of, wait_until
from nodes import needs_nodes, processes_in

from shoal.config.read import read
from shoal.config.write import to_plain
from shoal.launch.netns.cluster import VirtualCluster
from shoal.launch.netns.run import on_nodes
from shoal.launch.process.processes import ProcessTask
from shoal.launch.run import launch_run
from shoal.launch.supervise import Listener
from shoal.training.observer import Silent

pytestmark = [needs_nodes, pytest.mark.long]


class Result(Listener):
    """Of rank 0."""

    def heard(self, rank, report):
        if rank == 0 and report["kind"] == "finished":
            self.value = report["result"]


def trained(run, nodes):
    """The result of a run on these nodes."""
    settings = {"kind": "train", "config": to_plain(run), "resumed": "", "then": [], "every_step": False}
    listener = Result()
    on_nodes(ProcessTask(settings, keeps_output=True, threads=1), nodes, run.launch.workers, listener)
    return listener.value


# Bytes.

WIDE = (
    "--data synthetic --data.samples 64 --data.shape 1,4,4 --data.classes 3 --batch-size 32 --epochs 100 --threads 1 "
    "--device cpu --model mlp --model.hidden 1000,1000 --optimizer sgd --workers 2 --launcher netns --nodes 2"
)
WEIGHT_BYTES = 4 * (16 * 1000 + 1000 + 1000 * 1000 + 1000 + 1000 * 3 + 3)


@pytest.mark.parametrize("strategy", ["ddp", "zero --strategy.stage 3"])
def test_a_step_puts_its_formula_on_the_network_card_and_little_more(strategy, tmp_path):
    """2 (n − 1) / n times the gradients from each of n workers: counted from 4 steps to 24, over 1 Gbit/s."""
    sent, counted = [], []
    for steps in (4, 24):
        words = f"{WIDE} --strategy {strategy} --steps {steps} --runs-dir {tmp_path}"
        with VirtualCluster(2, 1e9) as cluster:
            counted.append(trained(read(None, words.split()), cluster.nodes)["bytes_sent"])
            sent.append([node.sent_bytes() for node in cluster.nodes])
    formula = 20 * WEIGHT_BYTES
    assert formula <= counted[1] - counted[0] <= 1.01 * formula
    for before, after in zip(*sent, strict=True):
        assert formula <= after - before <= 1.03 * formula


# Strangers.


class Stranger:
    """A program on a third machine that attacks a run of two as soon as rank 1 waits in its step."""

    def __init__(self, cluster, proof, over):
        self._cluster, self._proof, self._over = cluster, proof, over
        self.listeners, self.seen, self.done = [], b"", {}
        command = [sys.executable, str(HERE / "attacks.py")]
        self._program = cluster.nodes[2].start(command, environment(), stdin=-1, stdout=-1, text=True)
        assert self._program.stdout.readline() == "ready\n"
        self._thread = threading.Thread(target=self._attack)

    def _attack(self):
        try:
            wait_until(self._proof.exists)
            found = [pid for pid, line in processes_in(self._cluster).items() if b"attacks.py" not in line]
            self.seen = b"".join(
                Path(f"/proc/{pid}/{name}").read_bytes() for pid in found for name in ("cmdline", "environ")
            )
            # Only the agent of the first machine listens beside the workers.
            (store,) = set(listening_addresses([pid for pid in found if rank_of(pid) is None]))
            self.listeners = set(listening_addresses(found))
            addresses = {
                each: [each.rpartition(":")[0], int(each.rpartition(":")[2])] for each in self.listeners
            }
            given = {"store": addresses[store], "sockets": list(addresses.values())}
            self._program.stdin.write(json.dumps(given) + "\n")
            self._program.stdin.flush()
            for line in self._program.stdout:
                self.done = json.loads(line)
                if min(self.done.values()) > 20:
                    break
        finally:
            self._over.touch()  # it attacks until the run has ended

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._program.kill()
        self._program.communicate()


SECRET = "correct horse battery staple"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    over = folder / "over"
    with pytest.MonkeyPatch.context() as patch, VirtualCluster(3) as cluster:
        patch.setenv("PYTHONPATH", str(HERE))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("SHOAL_SECRET", SECRET)
        patch.setenv("AWAITED", str(over))
        patch.syspath_prepend(str(HERE))
        run = config(folder, "--workers 2 --launcher netns --nodes 2", fault="await")
        with Stranger(cluster, folder / "proof", over) as stranger:
            result = trained(run, cluster.nodes[:2])
        return stranger, result, [node.address for node in cluster.nodes]


def test_a_stranger_on_the_network_changes_nothing(attacked, tmp_path, monkeypatch):
    stranger, result, _ = attacked
    assert min(stranger.done.values()) > 20
    monkeypatch.syspath_prepend(str(HERE))
    unharmed = launch_run(config(tmp_path, "--workers 2 --launcher threads"), Silent())
    assert result["weights_sha256"] == unharmed.weights_sha256


def test_machines_listen_on_the_address_of_their_network_alone(attacked):
    stranger, _, addresses = attacked
    assert len(stranger.listeners) >= 3, "the store, and gloo in both workers"
    assert {each.rpartition(":")[0] for each in stranger.listeners} == set(addresses[:2])


def test_no_command_line_and_no_environment_of_a_machine_shows_a_secret(attacked):
    stranger, _, _ = attacked
    assert b"OMP_NUM_THREADS" in stranger.seen
    assert b"SHOAL_SECRET" not in stranger.seen
    assert SECRET.encode() not in stranger.seen
