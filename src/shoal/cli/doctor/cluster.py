"""`shoal doctor --cluster` on one worker: it tells about itself, measures the other nodes, and rank 0 hears of all.

Phases, one after the other on all workers: arrive; a matrix product on every device; every pair of nodes, in both
directions, pairs without a common node at the same time; what was slow once more, alone. The workers wait for each
other in the store, where each wait has a limit: who does not answer holds up the rest once.
"""

import itertools
import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, final

import torch
import torch.distributed as dist

from shoal import __version__
from shoal.cli.doctor.pairs import Answerer, Found, measure
from shoal.cli.doctor.verdicts import Link, Slow, slow_links, slow_values, suspects
from shoal.comm.join import WorkerAddress, own_place, reached_by_others, store_at, take_gpu
from shoal.comm.rendezvous.meet import Card
from shoal.comm.rendezvous.network import addresses_of, interfaces, own_address
from shoal.comm.rendezvous.reach import machines_of
from shoal.comm.rendezvous.secret import SETTINGS as SECRETS
from shoal.comm.rendezvous.secret import warn_without_secret
from shoal.comm.rendezvous.store import answers_within, parsed
from shoal.comm.rendezvous.tagged_store import TaggedStore, tagged
from shoal.errors import ConfigError, JoinTimeoutError

ASK_EVERY_S = 0.01
PHASE_S = 20.0
"""How long a worker waits in one phase for the others; longer than any phase takes."""
MATRIX_S = 0.3
CPU_SIZE, GPU_SIZE = 256, 4096
"""Rows of the matrices: on a CPU a product fits in a time slice of a busy machine."""
MORE_TRIES = 2
MOST_SUSPECTS = 8


@dataclass
class Cluster:
    """What rank 0 has heard of all; nodes are named by the rank of their first worker."""

    size: int
    missing: list[int] = field(default_factory=list[int])
    workers: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """By rank: versions, addresses, name of the device."""
    machines: dict[int, Card] = field(default_factory=dict[int, Card])
    products: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """By rank: multiplications and additions per second, of each try."""
    answers: dict[int, tuple[str, int, str]] = field(default_factory=dict[int, tuple[str, int, str]])
    """By node: the address, port and interface at which it answers the others."""
    found: dict[Link, list[Found]] = field(default_factory=dict[Link, list[Found]])
    """By (caller, answerer): each try."""

    seconds: float = 0.0
    """Since all had arrived."""

    def slow_rates(self) -> list[Slow]:
        """Nodes and links with a low rate, in bits per second; links are (from, to)."""
        return slow_links({(b, a): [each.bits_per_s for each in tries] for (a, b), tries in self.opened()})

    def slow_answers(self) -> list[Slow]:
        """Nodes and links with a long latency, as answers per second; links are (caller, answerer)."""
        return slow_links({link: [each.answers_per_s for each in tries] for link, tries in self.opened()})

    def suspects(self) -> list[Link]:
        """The (caller, answerer) to measure again."""
        low = [(b, a) for a, b in suspects(self.slow_rates(), MOST_SUSPECTS)]
        return list(dict.fromkeys([*low, *suspects(self.slow_answers(), MOST_SUSPECTS)]))[:MOST_SUSPECTS]

    def opened(self) -> list[tuple[Link, list[Found]]]:
        """The tries of links that open."""
        good = {link: [each for each in tries if not each.error] for link, tries in self.found.items()}
        return [(link, tries) for link, tries in good.items() if tries]


def examine(timeout_s: float) -> Cluster | None:
    """Examine the cluster together with all other workers; None except on rank 0."""
    place = own_place()
    if place is None:
        raise ConfigError(
            "no launcher has started this process, so there is no cluster to examine",
            "torchrun --nnodes 2 … -m shoal doctor --cluster, srun shoal doctor --cluster, or set RANK, WORLD_SIZE, "
            "MASTER_ADDR and MASTER_PORT (docs/en/cluster.md).",
        )
    store = dist.PrefixStore(f"shoal/doctor/{place.attempt}", store_at(place, timeout_s))
    with answers_within(2 * timeout_s + 60, place.rank, place.host, place.port):
        return _Doctor(place, tagged(store, place.rank), timeout_s).examine()


@final
class _Doctor:
    """One worker's side."""

    def __init__(self, place: WorkerAddress, store: TaggedStore, timeout_s: float) -> None:
        self._rank, self._place, self._store, self._timeout_s = place.rank, place, store, timeout_s
        self._cluster = Cluster(place.size)
        self._gone = set[int]()
        """Workers that did not answer in time; nobody waits for them again."""
        take_gpu(os.environ)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def examine(self) -> Cluster | None:
        """All phases; None except on rank 0."""
        cluster = self._cluster
        self._begin()
        self._arrive()
        started = time.monotonic()
        cards = {
            rank: Card.read(rank, json.dumps(worker["card"])) for rank, worker in cluster.workers.items()
        }
        cluster.machines = machines_of(list(cards.values()))
        host = reached_by_others(cards[self._rank], list(cards.values()))
        if self._rank == 0 and len(cluster.machines) > 1:
            warn_without_secret(host)
        self._multiply()
        if self._rank in cluster.machines:
            self._measure_nodes(host)
        self._write("done", True)
        if self._rank != 0:
            return None
        self._read("done", list(cluster.workers))  # this process may hold the store
        cluster.seconds = time.monotonic() - started
        return cluster

    # Phases.

    def _begin(self) -> None:
        """Wait until rank 0 has begun."""
        self._store.note_secret()
        deadline = time.monotonic() + self._timeout_s
        while not self._store.begin():
            if time.monotonic() > deadline:
                raise JoinTimeoutError(
                    f"rank 0 has not begun to examine the cluster within {self._timeout_s:g} s",
                    f"Was it started with the same command? {SECRETS}",
                )
            time.sleep(ASK_EVERY_S)

    def _arrive(self) -> None:
        """Tell about this worker; rank 0 decides who is there."""
        self._write("worker", self._about())
        if self._rank == 0:
            found = self._read("worker", range(self._place.size), self._timeout_s)
            self._gone.clear()
            self._write("present", sorted(found))
        present = self._read("present", [0], self._timeout_s + PHASE_S).get(0, [])
        if self._rank not in present:
            raise JoinTimeoutError(
                f"rank {self._rank} came too late", "Start all workers within --join-timeout."
            )
        self._cluster.workers = self._read("worker", present)
        self._cluster.missing = sorted(set(range(self._place.size)) - set(present))

    def _about(self) -> dict[str, Any]:
        host = own_address(self._place.host, self._place.port)
        is_gpu = self._device.type == "cuda"
        return {
            "card": asdict(Card.of_this_process(self._rank, {}, address=host)),
            "versions": {
                "shoal": __version__,
                "torch": torch.__version__.split("+")[0],
                "python": platform.python_version(),
            },
            "master": addresses_of(self._place.host),
            "device": torch.cuda.get_device_name() if is_gpu else "one core",
        }

    def _multiply(self) -> None:
        """A matrix product on every worker's device; slow devices once more, one at a time."""
        self._write("product", [self._product()])
        products = self._cluster.products = self._read("product", list(self._cluster.workers))
        for rank in sorted(slow_values(products))[:MOST_SUSPECTS]:
            if rank == self._rank:
                self._write("product again", [self._product() for _ in range(MORE_TRIES)])
            products[rank] = products[rank] + self._read("product again", [rank]).get(rank, [])

    def _product(self) -> float:
        """The fastest of the products of a moment, in multiplications and additions per second."""
        size = GPU_SIZE if self._device.type == "cuda" else CPU_SIZE
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        matrix = torch.ones(size, size, device=self._device)
        (matrix @ matrix)[0, 0].item()  # loads what the first product needs
        shortest_s, begun = float("inf"), time.perf_counter()
        while time.perf_counter() - begun < MATRIX_S:
            start = time.perf_counter()
            (matrix @ matrix)[0, 0].item()  # waits for the device
            shortest_s = min(shortest_s, time.perf_counter() - start)
        torch.set_num_threads(threads)
        return 2 * size**3 / shortest_s

    def _measure_nodes(self, host: str) -> None:
        """Every pair of nodes in both directions, then slow links once more, one at a time."""
        cluster, key = self._cluster, self._store.connection_key()
        nodes = list(cluster.machines)
        answerer = Answerer(host, self._rank, key)
        interface = next((name for name, address in interfaces().items() if address == host), "")
        self._write("answers", (host, answerer.port, interface))
        cluster.answers = self._read("answers", nodes)

        def found_of(other: int) -> Found:
            return measure(*cluster.answers[other][:2], self._rank, other, key)

        mine: list[tuple[int, Found]] = []
        for number, calls in enumerate(rounds(sorted(cluster.answers))):
            mine += [(other, found_of(other)) for caller, other in calls if caller == self._rank]
            self._write(f"round {number}", True)
            self._read(f"round {number}", nodes)
        self._write("found", [(other, astuple(found)) for other, found in mine])
        for caller, rows in self._read("found", nodes).items():
            cluster.found |= {(caller, other): [Found(*found)] for other, found in rows}
        for number, (caller, other) in enumerate(cluster.suspects()):
            if caller == self._rank:
                again = [found_of(other) for _ in range(MORE_TRIES)]
                self._write(f"again {number}", [astuple(found) for found in again])
            for found in self._read(f"again {number}", [caller]).get(caller, []):
                cluster.found[caller, other].append(Found(*found))
        answerer.close()

    # The store.

    def _write(self, key: str, value: object) -> None:
        self._store.set(f"{key}/{self._rank}", json.dumps(value))

    def _read(self, key: str, ranks: Sequence[int], limit_s: float = PHASE_S) -> dict[int, Any]:
        """What these workers have written, without those who have not in time."""
        asked = [rank for rank in ranks if rank not in self._gone]
        found = self._store.read_from(key, asked, limit_s)
        self._gone |= set(asked) - found.keys()
        return {rank: parsed(text) for rank, text in found.items()}


def rounds(nodes: Sequence[int]) -> list[list[Link]]:
    """Every (caller, answerer) once, in rounds in which no node has two partners.

    >>> rounds([0, 4])
    [[(0, 4)], [(4, 0)]]
    """
    # Of pairs with the same sum, modulo the number, no two have a node in common.
    pairs: dict[int, list[Link]] = {}
    for low, high in itertools.combinations(range(len(nodes)), 2):
        pairs.setdefault((low + high) % len(nodes), []).append((nodes[low], nodes[high]))
    return [calls for some in pairs.values() for calls in (some, [(high, low) for low, high in some])]
