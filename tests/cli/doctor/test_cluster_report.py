"""What rank 0 says about a cluster: each fault is named with its nodes, and a healthy cluster has none."""

import itertools
import json

import pytest

from shoal.cli.doctor import command
from shoal.cli.doctor.cluster import Cluster
from shoal.cli.doctor.cluster_report import as_dict, checks_of, tables_of
from shoal.cli.doctor.pairs import Found
from shoal.comm.rendezvous.meet import Card

VERSIONS = {"shoal": "0.1.0", "torch": "2.13.0", "python": "3.11.7"}


def good(bits_per_s=1e9, latency_s=1e-4, clock_s=0.0):
    return Found("", "", 2 * latency_s, clock_s, bits_per_s)


def cluster_of(nodes=4):
    """Nodes that are all well, two workers on each."""
    cluster = Cluster(2 * nodes)
    for rank in range(2 * nodes):
        name = f"node{rank // 2}"
        card = Card(rank, name, f"boot of {name}", "pid", 1, {}, address=f"10.0.0.{rank // 2}")
        cluster.workers[rank] = {
            "card": vars(card),
            "versions": dict(VERSIONS),
            "master": ["10.0.0.0"],
            "device": "one core",
        }
        cluster.products[rank] = [5e10, 5e10]
        if rank % 2 == 0:
            cluster.machines[rank] = card
            cluster.answers[rank] = (card.address, 4000 + rank, "eth0")
    for link in itertools.permutations(cluster.machines, 2):
        cluster.found[link] = [good()] * 3
    return cluster


def named(cluster):
    """Status and name of every check that is not OK, and its words."""
    return {check.name: (check.status, check.found) for check in checks_of(cluster) if check.status != "OK"}


def test_a_healthy_cluster_has_nothing_to_name():
    checks = checks_of(cluster_of())
    assert {check.status for check in checks} == {"OK"}
    assert [check.name for check in checks] == [
        "workers", "versions", "master", "ports", "clocks", "bandwidth", "latency", "devices",
    ]  # fmt: skip


def test_a_closed_port_is_named_with_both_nodes_address_and_port():
    cluster = cluster_of()
    cluster.found[2, 6] = [Found("nothing answers", "open it")]
    assert set(named(cluster)) == {"ports"}
    status, words = named(cluster)["ports"]
    assert status == "FAIL"
    assert all(part in words for part in ("node1", "node3", "10.0.0.3", "4006", "nothing answers"))


def test_a_node_that_nobody_reaches_is_one_line():
    cluster = cluster_of()
    for caller in (0, 4, 6):
        cluster.found[caller, 2] = [Found("nothing answers", "open it")]
    ports = [check for check in checks_of(cluster) if check.name == "ports"]
    assert len(ports) == 1
    assert "node1" in ports[0].found


def test_a_slow_node_and_a_slow_link_are_named_beside_the_others():
    cluster = cluster_of()
    cluster.found[4, 0] = [good(1e8)] * 3  # the rate from node0 to node2
    status, words = named(cluster)["bandwidth"]
    assert status == "WARN"
    assert "node0 → node2" in words
    assert "100 Mbit/s" in words
    assert "1,000 Mbit/s" in words
    for link in cluster.found:
        cluster.found[link] = [good(latency_s=0.01 if 6 in link else 1e-4)] * 3
    assert "node3" in named(cluster)["latency"][1]
    assert set(named(cluster)) == {"latency"}


def test_tries_that_differ_are_said_to_be_undecided_and_named_by_no_warning():
    cluster = cluster_of()
    cluster.found[4, 0] = [good(1e8), good(1e8), good(1e9)]
    assert named(cluster) == {}
    (bandwidth,) = [check for check in checks_of(cluster) if check.name == "bandwidth"]
    assert "node0 → node2" in bandwidth.found


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("torch", "2.12.0", "FAIL"),
        ("shoal", "0.0.9", "FAIL"),
        ("python", "3.11.2", "WARN"),
        ("python", "3.12.1", "FAIL"),
    ],
)
def test_versions_that_differ_are_shown_side_by_side(name, version, status):
    cluster = cluster_of()
    cluster.workers[5]["versions"][name] = version
    found_status, words = named(cluster)["versions"]
    assert found_status == status
    assert all(part in words for part in (name, version, VERSIONS[name], "rank 5", "node2"))


def test_names_clocks_devices_and_workers():
    cluster = cluster_of()
    cluster.workers[2]["master"] = ["127.0.1.1"]
    for link, sign in (((0, 6), 1), ((6, 0), -1)):
        cluster.found[link] = [good(clock_s=sign * 3.0)] * 3
    cluster.products[3] = [2e10] * 3
    cluster.missing = [7]
    found = named(cluster)
    assert set(found) == {"master", "clocks", "devices", "workers"}
    assert "127.0.1.1" in found["master"][1]
    assert "node3 is 3 s ahead" in found["clocks"][1]
    assert "rank 3 on node1" in found["devices"][1]
    assert found["workers"][0] == "FAIL"


def test_tables_and_json_hold_what_was_measured():
    cluster = cluster_of()
    cluster.found[2, 6] = [Found("nothing answers", "open it")]
    tables = tables_of(cluster)
    assert all(f"node{number}" in tables for number in range(4))
    assert tables.count("closed") == 1
    shown = json.loads(command.as_json(checks_of(cluster), as_dict(cluster)))
    assert shown["status"] == "FAIL"
    assert len(shown["pairs"]) == 12
    assert shown["nodes"]["6"] == "node3"
