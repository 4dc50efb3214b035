"""Virtual machines: apart from each other and from this machine, joined by a shaped link, gone with their maker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.launch.netns.cluster import VirtualCluster, missing_for_cluster

pytestmark = pytest.mark.skipif(bool(missing_for_cluster()), reason=missing_for_cluster() or "-")


@pytest.fixture(scope="module")
def cluster():
    with VirtualCluster(2) as cluster:
        yield cluster


def said(node, *command):
    return node.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_each_node_has_a_name_an_address_and_processes_of_its_own(cluster):
    for number, node in enumerate(cluster.nodes):
        assert said(node, "hostname") == node.name == f"node0{number + 1}"
        assert said(node, "getent", "hosts", node.name).split()[0] == node.address
        assert len(said(node, "sh", "-c", "echo /proc/[0-9]*").split()) == 2  # the holder's and the shell


def test_a_folder_and_shared_memory_of_a_node_are_seen_by_no_other(cluster, tmp_path):
    first, second = cluster.nodes
    (tmp_path / "before").touch()
    first.own(tmp_path)
    for folder in (tmp_path, Path("/dev/shm")):
        first.run(["touch", folder / "mine"], check=True)
        assert said(second, "ls", folder).split() == (["before"] if folder == tmp_path else [])
        assert os.listdir(first.path(folder)) == ["mine"]
    assert os.listdir(tmp_path) == ["before"]
    first.own(tmp_path)
    assert os.listdir(first.path(tmp_path)) == []


def test_a_command_ends_as_its_popen_shows(cluster, tmp_path):
    node = cluster.nodes[0]
    assert node.start(["sh", "-c", "exit 7"]).wait() == 7
    assert node.start(["no-such-command"], stderr=subprocess.DEVNULL).wait() == 127
    waiting = node.start(["sh", "-c", "pwd; exec sleep 1000"], stdout=-1, text=True, cwd=tmp_path)
    assert waiting.stdout.readline().strip() == str(tmp_path)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait() == -signal.SIGTERM
    waiting.stdout.close()


TAKE = """
import socket
with socket.create_server(("", 4000)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    print(sum(len(data) for data in iter(lambda: connection.recv(1 << 20), b"")))
"""
GIVE = "import socket; socket.create_connection(('node01', 4000)).sendall(bytes({}))"


def transfer(cluster, num_bytes):
    """The bytes that arrive at node01, and the bytes on the card of node02 that sent them."""
    receiver = cluster.nodes[0].start([sys.executable, "-c", TAKE], stdout=-1, text=True)
    assert receiver.stdout.readline() == "ready\n"
    before = cluster.nodes[1].sent_bytes()
    cluster.nodes[1].run([sys.executable, "-c", GIVE.format(num_bytes)], check=True)
    arrived = int(receiver.communicate()[0])
    return arrived, cluster.nodes[1].sent_bytes() - before


def test_counters_of_the_card_count_what_was_sent_and_its_headers(cluster):
    arrived, sent = transfer(cluster, 3_000_000)
    assert arrived == 3_000_000 < sent < 3_000_000 * 1.06
    assert cluster.nodes[0].received_bytes() >= 3_000_000


def test_a_shaped_card_has_the_rate_that_was_asked_for(cluster):
    """The filter lets no bytes pass before their time, so that no disturbance makes it too fast."""
    cluster.nodes[1].shape(20e6)
    try:
        started = time.perf_counter()
        _, sent = transfer(cluster, 1_000_000)
        took_s = time.perf_counter() - started
    finally:
        cluster.nodes[1].shape(None)
    assert sent * 8 / took_s < 20e6 * 1.05


MAKER = """
import sys, time
from shoal.launch.netns.cluster import VirtualCluster
with VirtualCluster(2) as cluster:
    cluster.nodes[0].start(["sleep", "1000"])
    print(*(node.pid for node in cluster.nodes), flush=True)
    time.sleep(1000)
"""


def test_nothing_is_left_of_a_cluster_whose_maker_was_killed():
    maker = subprocess.Popen([sys.executable, "-c", MAKER], stdout=-1, text=True)
    pids = maker.stdout.readline().split()
    assert len(pids) == 2
    maker.kill()
    maker.communicate()
    while any(Path(f"/proc/{pid}/ns/net").exists() for pid in pids):
        time.sleep(0.01)  # the test's own timeout


def test_a_cluster_of_no_nodes_is_refused():
    with pytest.raises(ConfigError):
        VirtualCluster(0)
