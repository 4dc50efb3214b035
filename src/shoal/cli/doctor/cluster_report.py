"""What `shoal doctor --cluster` shows on rank 0: tables of nodes and of pairs, and a check for each question."""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.cli.doctor.checks import Check
from shoal.cli.doctor.cluster import Cluster
from shoal.cli.doctor.pairs import latency_s
from shoal.cli.doctor.verdicts import Link, Slow, slow_values
from shoal.comm.rendezvous.network import is_loopback
from shoal.report.plain_tables import aligned

CLOCK_S = 0.1
"""Clocks that differ by more than this, after the error of the measurement, are named."""
MOST_COLUMNS = 12
"""Nodes up to which pairs are shown as a table."""


def names_of(cluster: Cluster) -> dict[int, str]:
    """The nodes' names by rank; with the rank where two have the same.

    >>> names_of(Cluster(2))
    {}
    """
    names = {rank: card.host for rank, card in cluster.machines.items()}
    times = Counter(names.values())
    return {rank: name if times[name] == 1 else f"{name}/{rank}" for rank, name in names.items()}


def checks_of(cluster: Cluster) -> list[Check]:
    """A check for every question, in a fixed order; several where several things are wrong."""
    names = names_of(cluster)
    opened = [tries for _, tries in cluster.opened()]
    rates = [max(each.bits_per_s for each in tries) for tries in opened]
    answers = [max(each.answers_per_s for each in tries) for tries in opened]
    return [
        *_workers(cluster),
        *_versions(cluster),
        *_master(cluster, names),
        *_ports(cluster, names),
        *_clocks(cluster, names),
        *_slow(
            "bandwidth",
            cluster.slow_rates(),
            names,
            rates,
            lambda rate: f"{rate / 1e6:,.{1 if rate < 1e8 else 0}f} Mbit/s",
        ),
        *_slow(
            "latency", cluster.slow_answers(), names, answers, lambda rate: f"{1e3 * latency_s(rate):.2g} ms"
        ),
        *_devices(cluster),
    ]


def _workers(cluster: Cluster) -> list[Check]:
    there = f"{len(cluster.workers)} of {cluster.size} workers on {len(cluster.machines)} nodes"
    there += f", examined in {cluster.seconds:.0f} s"
    if not cluster.missing:
        return [Check("workers", "OK", there)]
    absent = ", ".join(map(str, cluster.missing))
    repair = "see the output of these workers: it says what they cannot reach"
    return [Check("workers", "FAIL", f"{there}; missing: rank {absent}", repair)]


def _versions(cluster: Cluster) -> list[Check]:
    """Side by side where they differ."""
    found: list[Check] = []
    for name in ("shoal", "torch", "python"):
        by_version: dict[str, list[str]] = {}
        for rank, worker in cluster.workers.items():
            by_version.setdefault(worker["versions"][name], []).append(
                f"rank {rank} on {worker['card']['host']}"
            )
        if len(by_version) > 1:
            sides = "; ".join(f"{version}: {', '.join(ranks)}" for version, ranks in by_version.items())
            # The same minor version of Python is the same to a run.
            same = name == "python" and len({version.rpartition(".")[0] for version in by_version}) == 1
            repair = f"install the same {name} on all nodes"
            found.append(Check("versions", "WARN" if same else "FAIL", f"{name} differs: {sides}", repair))
    if found or not cluster.workers:
        return found
    versions = next(iter(cluster.workers.values()))["versions"]
    return [Check("versions", "OK", ", ".join(f"{name} {version}" for name, version in versions.items()))]


def _master(cluster: Cluster, names: Mapping[int, str]) -> list[Check]:
    """Every node resolves the master's name, to the same addresses."""
    found = {rank: tuple(cluster.workers[rank]["master"]) for rank in names}
    if len(set(found.values())) <= 1:
        return [Check("master", "OK", ", ".join(next(iter(found.values()), ())))]
    sides = "; ".join(f"{', '.join(addresses)} on {names[rank]}" for rank, addresses in found.items())
    local = any(is_loopback(address) for addresses in found.values() for address in addresses)
    repair = "give the same address for this name in /etc/hosts of every node, or MASTER_ADDR as a number"
    return [Check("master", "WARN" if local else "FAIL", f"the name of the master differs: {sides}", repair)]


def _ports(cluster: Cluster, names: Mapping[int, str]) -> list[Check]:
    """Closed connections; a node that nobody reaches is one line."""
    closed = {link: tries[-1] for link, tries in cluster.found.items() if tries[-1].error}
    found: list[Check] = []
    for other in names:
        callers = [caller for caller in names if (caller, other) in closed]
        if not callers:
            continue
        first = closed[callers[0], other]
        asked = [caller for caller in names if (caller, other) in cluster.found]
        who = (
            "no other node"
            if len(callers) == len(asked) > 1
            else " and ".join(map(names.__getitem__, callers))
        )
        verb = "connects" if len(callers) == len(asked) > 1 else "cannot connect"
        address, port, _ = cluster.answers[other]
        text = f"{who} {verb} to {names[other]} ({address}, port {port}): {first.error}"
        found.append(Check("ports", "FAIL", text, first.repair))
    silent = [names[rank] for rank in names if rank not in cluster.answers]
    if silent:
        found.append(
            Check("ports", "FAIL", f"no answer from {', '.join(silent)}", "see the output of its workers")
        )
    return found or [Check("ports", "OK", f"{len(cluster.found)} connections, both directions of every pair")]


def _clocks(cluster: Cluster, names: Mapping[int, str]) -> list[Check]:
    offsets = clocks_of(cluster)
    far = [
        f"{names[rank]} is {abs(offset_s):.3g} s {'ahead' if offset_s > 0 else 'behind'}"
        for rank, (offset_s, error_s) in offsets.items()
        if abs(offset_s) - error_s > CLOCK_S
    ]
    if far:
        repair = "timedatectl set-ntp true on every node; until then, times of different nodes do not compare"
        return [Check("clocks", "WARN", f"compared with {names[0]}: {', '.join(far)}", repair)]
    most_s = max((abs(offset_s) + error_s for offset_s, error_s in offsets.values()), default=0.0)
    return [Check("clocks", "OK", f"within {1e3 * most_s:.2g} ms of {names.get(0, 'each other')}")]


def clocks_of(cluster: Cluster) -> dict[int, tuple[float, float]]:
    """How far each node's clock is ahead of rank 0's, and the error of that."""
    found: dict[int, tuple[float, float]] = {}
    for (caller, other), tries in cluster.opened():
        best = min(tries, key=lambda each: each.round_trip_s)
        node, sign = (other, 1) if caller == 0 else (caller, -1)
        if 0 in (caller, other) and (node not in found or best.round_trip_s / 2 < found[node][1]):
            found[node] = (sign * best.clock_s, best.round_trip_s / 2)
    return found


def _slow(
    name: str,
    slow: Sequence[Slow],
    names: Mapping[int, str],
    values: Sequence[float],
    shown: Callable[[float], str],
) -> list[Check]:
    """What is sure is a warning; what is undecided is said and is none."""
    found: list[Check] = []
    unsure = ""
    for each in slow:
        if each.node is not None:
            what = f"{names[each.node]} is slow {each.way} all other nodes"
        else:
            what = f"{names[each.links[0][0]]} → {names[each.links[0][1]]} is slow"
        text = f"{what}: {shown(each.value)}, the median of the others is {shown(each.others)}"
        if each.sure:
            repair = "compare cable, port of the switch, MTU and `ethtool CARD` with a node that is not slow"
            found.append(Check(name, "WARN", text, repair))
        else:
            unsure += f"; undecided, because tries differ: {text}"
    if found or not values:
        return found
    middle = f"median {shown(statistics.median(values))}, slowest {shown(min(values))}"
    return [Check(name, "OK", middle + unsure)]


def _devices(cluster: Cluster) -> list[Check]:
    found: list[Check] = []
    for device in sorted({worker["device"] for worker in cluster.workers.values()}):
        tries = {
            rank: values
            for rank, values in cluster.products.items()
            if cluster.workers[rank]["device"] == device
        }
        slow = slow_values(tries)
        for rank, (value, others, sure) in slow.items():
            host = cluster.workers[rank]["card"]["host"]
            text = f"rank {rank} on {host}: {shown_product(value)}, the median of the others is {shown_product(others)}"
            if sure:
                repair = "look for other programs, a power limit or heat: top, nvidia-smi -q -d PERFORMANCE"
                found.append(Check("devices", "WARN", f"{device} is slow, {text}", repair))
        if tries and not found:
            middle = statistics.median(max(values) for values in tries.values())
            found.append(Check("devices", "OK", f"{device}: median {shown_product(middle)}"))
    return found


def shown_product(per_s: float) -> str:
    """A rate of multiplications and additions.

    >>> shown_product(52e12), shown_product(45.2e9)
    ('52 TFLOP/s', '45.2 GFLOP/s')
    """
    return f"{per_s / 1e12:.3g} TFLOP/s" if per_s >= 1e12 else f"{per_s / 1e9:.3g} GFLOP/s"


def tables_of(cluster: Cluster) -> str:
    """The nodes; then rate and latency of every pair, if a terminal has room for all nodes."""
    names, clocks = names_of(cluster), clocks_of(cluster)
    rows: list[list[str]] = []
    for rank, name in names.items():
        mine = [other for other, worker in cluster.workers.items() if _same_node(cluster, rank, worker)]
        product = statistics.median(max(cluster.products.get(other, [0.0])) for other in mine)
        address, _, interface = cluster.answers.get(rank, (cluster.machines[rank].address, 0, ""))
        clock = f"{1e3 * clocks[rank][0]:+,.2f} ms" if rank in clocks else ""
        versions = cluster.workers[rank]["versions"].values()
        rows.append([name, str(len(mine)), address, interface, clock, shown_product(product), *versions])
    header = ["node", "workers", "address", "interface", "clock", "product", "shoal", "torch", "python"]
    blocks = [aligned(header, rows, right=frozenset({1, 4, 5}))]
    if 1 < len(names) <= MOST_COLUMNS:
        rates = {
            (b, a): f"{max(f.bits_per_s for f in tries) / 1e6:,.0f}" for (a, b), tries in cluster.opened()
        }
        latencies = {link: f"{1e3 * min(f.latency_s for f in tries):.2f}" for link, tries in cluster.opened()}
        closed = dict.fromkeys(cluster.found.keys() - latencies.keys(), "closed")
        blocks.append("Mbit/s, from the row to the column\n" + _matrix(names, rates))
        blocks.append(
            "ms of latency, connected from the row to the column\n" + _matrix(names, latencies | closed)
        )
    return "\n\n".join(blocks)


def _same_node(cluster: Cluster, rank: int, worker: Mapping[str, Any]) -> bool:
    card, first = worker["card"], cluster.machines[rank]
    return (card["boot"], card["processes"]) == (first.boot, first.processes)


def _matrix(names: Mapping[int, str], cells: Mapping[Link, str]) -> str:
    rows = [[name, *(cells.get((rank, other), "") for other in names)] for rank, name in names.items()]
    return aligned(["", *names.values()], rows, right=frozenset(range(1, len(names) + 1)))


def as_dict(cluster: Cluster) -> dict[str, Any]:
    """All measurements, for programs; nodes are named by the rank of their first worker."""
    return {
        "nodes": names_of(cluster),
        "missing": cluster.missing,
        "seconds": cluster.seconds,
        "workers": cluster.workers,
        "products": cluster.products,
        "pairs": [
            {"caller": caller, "answerer": other, "tries": [dataclasses.asdict(each) for each in tries]}
            for (caller, other), tries in cluster.found.items()
        ],
    }
