"""Networks that a run finds, or names before it trains, in virtual nodes: cards, firewalls, slow links."""

import json
import subprocess

import pytest
from launching import command, environment, flags
from nodes import needs_nodes, nodes, shoal

from shoal.launch.netns.cluster import VirtualCluster

pytestmark = [pytest.mark.long, needs_nodes]
PORT = 29517


def ended(cluster, *words, **variables):
    """Run a command of shoal on every node, by hand; exit code and words of each."""
    running = []
    for rank, node in enumerate(cluster.nodes):
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(cluster.nodes)), "MASTER_ADDR": "node01"}
        place |= {"MASTER_PORT": str(PORT), "SHOAL_SECRET": "sixteen bytes or more", **variables}
        running.append(
            node.start(
                command(*words), env=environment(**place), stdout=-1, stderr=subprocess.STDOUT, text=True
            )
        )
    return [(process.communicate()[0], process.returncode) for process in running]


def drop(node, *rules):
    """A firewall: what comes in and fits a rule of `ip rule` is treated as it says."""
    node.call("ip", "rule", "add", "pref", "100", "lookup", "local")
    node.call("ip", "rule", "del", "pref", "0")
    for number, rule in enumerate(rules):
        words = rule.split()
        node.call("ip", "rule", "add", "pref", str(10 + number), "iif", "eth0", "ipproto", "tcp", *words)


STORE_ALONE = (f"dport {PORT} lookup local", f"sport {PORT} lookup local", "dport 1024-65534 blackhole")


def test_a_firewall_between_the_workers_is_named_with_addresses_before_the_first_step(tmp_path):
    with VirtualCluster(2) as cluster:
        for node in cluster.nodes:
            drop(node, *STORE_ALONE)
        for said, code in ended(cluster, "train", *flags(tmp_path)):
            assert code == 2
            assert all(word in said for word in ("node01", "10.213.7.1", "node02", "10.213.7.2"))
    assert list(tmp_path.glob("*/events*")) == []


def test_a_firewall_before_the_store_is_named_with_address_and_port(tmp_path):
    with VirtualCluster(2) as cluster:
        drop(cluster.nodes[0], f"dport {PORT} blackhole")
        (_, first), (said, second) = ended(cluster, "train", *flags(tmp_path), "--join-timeout", "8")
    assert (first, second) == (2, 2)
    assert f"node01:{PORT} (10.213.7.1)" in said


def test_the_card_that_reaches_the_master_is_found_among_two(tmp_path):
    with VirtualCluster(2) as cluster:
        for number, node in enumerate(cluster.nodes):
            # First by name, with the default route: what a library that looks at names or routes alone would take.
            node.call("ip", "link", "add", "aaa0", "type", "veth", "peer", "name", "aaa1")
            node.call("ip", "address", "add", f"172.30.{number}.5/24", "dev", "aaa0")
            node.call("ip", "link", "set", "aaa0", "up")
            node.call("ip", "link", "set", "aaa1", "up")
            node.call("ip", "route", "add", "default", "dev", "aaa0")
        assert [code for _, code in ended(cluster, "train", *flags(tmp_path))] == [0, 0]


def examined(cluster):
    """What `shoal doctor --cluster` finds: its checks by name, and all it has measured."""
    found = ended(cluster, "doctor", "--cluster", "--json", "--join-timeout", "100")
    assert [said for said, _ in found[1:]] == [""] * (len(cluster.nodes) - 1)
    shown = json.loads(found[0][0].splitlines()[-1])
    checks = {}
    for check in shown["checks"]:
        checks.setdefault(check["name"], []).append((check["status"], check["found"]))
    assert found[0][1] == (1 if shown["status"] == "FAIL" else 0)
    return checks, shown


def test_the_doctor_names_a_slow_node_and_a_closed_port_of_a_cluster():
    with VirtualCluster(4, rate=1e9) as cluster:
        cluster.nodes[2].shape(10e6)
        drop(cluster.nodes[3], f"from {cluster.nodes[1].address} dport 1024-65534 blackhole")
        checks, _ = examined(cluster)
    ports = " ".join(words for status, words in checks["ports"] if status == "FAIL")
    assert "node02 cannot connect to node04 (10.213.7.4" in ports
    assert "node01" not in ports
    ((status, words),) = checks["bandwidth"]
    assert status == "WARN"
    assert words.startswith("node03, to and from all other nodes, is slow")
    assert {status for name in ("workers", "versions", "master", "clocks") for status, _ in checks[name]} == {
        "OK"
    }


def test_the_doctor_measures_every_pair_of_a_healthy_cluster_under_our_launcher(tmp_path):
    """Whether anything is slow, depends on what else this machine does."""
    with nodes(3, tmp_path) as (_, flags):
        doctor = shoal("launch", *flags, "--workers", "2", "--", "shoal", "doctor", "--cluster", "--json")
        said, errors = doctor.communicate()
    assert doctor.returncode == 0, errors
    shown = json.loads(said.partition("] ")[2])
    assert shown["nodes"] == {"0": "node01", "2": "node02", "4": "node03"}
    assert len(shown["pairs"]) == 6
    assert all(tries["error"] == "" for pair in shown["pairs"] for tries in pair["tries"])
    by_name = {check["name"]: check["status"] for check in shown["checks"]}
    assert {by_name[name] for name in ("workers", "versions", "master", "ports", "clocks")} == {"OK"}
