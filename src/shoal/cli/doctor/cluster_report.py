"""What `shoal doctor --cluster` shows on rank 0: tables of nodes and of pairs, and a check for each question."""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.cli.doctor.checks import Check
from shoal.cli.doctor.cluster import Cluster
from shoal.cli.doctor.pairs import latency_s
from shoal.cli.doctor.verdicts import Link, Slow, Verdict, slow_values
from shoal.comm.rendezvous.network import is_loopback
from shoal.printable import counted
from shoal.report.plain_tables import aligned

CLOCK_S = 0.1
"""Clocks that differ by more than this, after the error of the measurement, are named."""
LINK_REPAIR = "compare cable, port of the switch, MTU and `ethtool CARD` with a node that is not slow"
DEVICE_REPAIR = "look for other programs, a power limit or heat: top, nvidia-smi -q -d PERFORMANCE"
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
        *_slow("bandwidth", _named(cluster.slow_rates(), names), rates, _shown_rate, LINK_REPAIR),
        *_slow("latency", _named(cluster.slow_answers(), names), answers, _shown_latency, LINK_REPAIR),
        *_devices(cluster),
    ]


def _workers(cluster: Cluster) -> list[Check]:
    there = f"{len(cluster.workers)} of {counted(cluster.size, 'worker')}"
    there += f" on {counted(len(cluster.machines), 'node')}"
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
        asked = [caller for caller in names if (caller, other) in cluster.found]
        by_all = len(callers) == len(asked) > 1
        who = (
            "no other node connects"
            if by_all
            else f"{' and '.join(names[c] for c in callers)} cannot connect"
        )
        address, port, _ = cluster.answers[other]
        first = closed[callers[0], other]
        text = f"{who} to {names[other]} ({address}, port {port}): {first.error}"
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


def _named(slow: Sequence[Slow], names: Mapping[int, str]) -> list[tuple[str, Verdict]]:
    found: list[tuple[str, Verdict]] = []
    for each in slow:
        link = " → ".join(names[node] for node in each.links[0])
        what = link if each.node is None else f"{names[each.node]}, {each.way} all other nodes,"
        found.append((what, each.verdict))
    return found


def _slow(
    name: str,
    cases: Sequence[tuple[str, Verdict]],
    values: Sequence[float],
    shown: Callable[[float], str],
    repair: str,
    title: str = "",
) -> list[Check]:
    """What is sure is a warning; what is undecided is said and is none."""
    texts = [
        f"{what} is slow: {shown(verdict.value)}, the median of the others is {shown(verdict.others)}"
        for what, verdict in cases
    ]
    sure = [text for text, (_, verdict) in zip(texts, cases, strict=True) if verdict.sure]
    if sure or not values:
        return [Check(name, "WARN", text, repair) for text in sure]
    usual = f"{title}median {shown(statistics.median(values))}, slowest {shown(min(values))}"
    return [Check(name, "OK", "; undecided, because tries differ: ".join([usual, *texts]))]


def _devices(cluster: Cluster) -> list[Check]:
    """Each is compared with others of the same name."""
    found: list[Check] = []
    workers = cluster.workers
    for device in sorted({worker["device"] for worker in workers.values()}):
        tries = {rank: each for rank, each in cluster.products.items() if workers[rank]["device"] == device}
        cases = [
            (f"rank {rank} on {workers[rank]['card']['host']} ({device})", verdict)
            for rank, verdict in slow_values(tries).items()
        ]
        values = [max(each) for each in tries.values()]
        found += _slow("devices", cases, values, shown_product, DEVICE_REPAIR, f"{device}: ")
    return found


def _shown_rate(bits_per_s: float) -> str:
    return f"{bits_per_s / 1e6:,.{1 if bits_per_s < 1e8 else 0}f} Mbit/s"


def _shown_latency(answers_per_s: float) -> str:
    return f"{1e3 * latency_s(answers_per_s):.2g} ms"


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
        clock = f"{round(1e3 * clocks[rank][0], 2) + 0.0:+,.2f} ms" if rank in clocks else ""
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
    found = [
        {"caller": caller, "answerer": other, "tries": [dataclasses.asdict(each) for each in tries]}
        for (caller, other), tries in cluster.found.items()
    ]
    told = {name: value for name, value in vars(cluster).items() if name not in ("found", "machines")}
    return {**told, "nodes": names_of(cluster), "pairs": found}
