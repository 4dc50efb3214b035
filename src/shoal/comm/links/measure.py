"""The link between two workers, and how fast it is when measured."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal.comm.group import Group, Messenger
from shoal.comm.links.courier import Clock
from shoal.config.conditions import Link

TRANSFER_S = 0.2
"""How long a link is kept busy to measure its rate, at the requested rate."""
MOST_BYTES = 64 * 2**20
"""The most that is sent: a fast link finishes sooner."""
NUM_MESSAGES = 20
PINGS_S = 0.05
"""How long pings may take, without the first."""
MOST_TRIES = 3
TOLERANCE = 0.05


def link_between(links: Sequence[Link], one: int, other: int) -> Link | None:
    """The link between two workers: the link that names them, else the link for any two.

    >>> links = [Link(None, 1e9), Link((0, 1), 1e6)]
    >>> link_between(links, 1, 0).bits_per_s, link_between(links, 1, 2).bits_per_s
    (1000000.0, 1000000000.0)
    """
    ends = (min(one, other), max(one, other))
    named = next((link for link in links if link.ends == ends), None)
    return named or next((link for link in links if link.ends is None), None)


class LinkNotice(UserWarning):
    """Reports the measured rate of a link; not a problem."""


@dataclass(frozen=True)
class Measured:
    """A link and its measured rate: the rate of the slower direction."""

    ends: tuple[int, int]
    link: Link
    bits_per_s: float
    latency_s: float

    def error(self) -> float:
        """The relative error of the rate."""
        return abs(self.bits_per_s / self.link.bits_per_s - 1)

    @property
    def reached(self) -> bool:
        """Whether the rate is the requested one, within 5 %."""
        return self.error() <= TOLERANCE

    def __str__(self) -> str:
        asked, unit = _in_bits(self.link.bits_per_s)
        return (
            f"link {self.ends[0]}-{self.ends[1]}: {asked:g} {unit}bit/s asked, "
            f"{self.bits_per_s / _UNITS[unit]:.3g} measured, latency {1e3 * self.latency_s:.1f} ms"
        )


def measure_links(group: Group, links: Sequence[Link], clock_ns: Clock = time.monotonic_ns) -> list[Measured]:
    """Measure the links of a shaped group, in both directions at once; all members call, all get the list.

    Takes about 0.2 s per link and worker, on a busy machine up to three times that: a rate more than 5 % off
    is measured again. Pairs that have no worker in common are measured at the same time.
    """
    pairs = [(one, other) for one in range(group.size) for other in range(one + 1, group.size)]
    laid = {pair: link for pair in pairs if (link := link_between(links, *pair)) is not None}
    mine = torch.zeros(group.size, 2, dtype=torch.float64)
    # Of pairs with the same sum, modulo the size, no two have a worker in common.
    for pair in sorted(laid, key=lambda pair: (sum(pair) % group.size, pair)):
        if group.rank in pair:
            peer = sum(pair) - group.rank
            found = _measure(group, peer, laid[pair], clock_ns)
            mine[peer] = torch.tensor([found.bits_per_s, found.latency_s])
    table = torch.empty(group.size, group.size, 2, dtype=torch.float64)
    group.all_gather(table, mine).wait()
    return [Measured(pair, link, *table[pair].tolist()) for pair, link in laid.items()]


def _measure(group: Messenger, peer: int, link: Link, clock_ns: Clock) -> Measured:
    """One link, as both its ends see it; of several measurements the best."""
    ends = (min(group.rank, peer), max(group.rank, peer))
    latency_s = _latency_s(group, peer, link, clock_ns)
    best = Measured(ends, link, 0.0, latency_s)
    for _ in range(MOST_TRIES):
        mine = torch.tensor([_bits_per_s(group, peer, link, clock_ns)], dtype=torch.float64)
        theirs = torch.empty_like(mine)
        sent = group.send(mine, peer)
        group.recv(theirs, peer).wait()
        sent.wait()
        found = Measured(ends, link, min(mine.item(), theirs.item()), latency_s)
        best = min(best, found, key=Measured.error)
        if best.reached:
            break
    return best


def _latency_s(group: Messenger, peer: int, link: Link, clock_ns: Clock) -> float:
    """Half the time that an empty message needs there and back; of a few, the shortest. Both ends call."""
    word = torch.empty(0)
    num_pings = 1 + min(4, int(PINGS_S / (2 * link.latency_s))) if link.latency_s else 5
    shortest_ns = float("inf")
    if group.rank > peer:
        group.recv(word, peer).wait()
    for _ in range(num_pings):
        start_ns = clock_ns()
        group.send(word, peer).wait()
        group.recv(word, peer).wait()
        shortest_ns = min(shortest_ns, clock_ns() - start_ns)
    if group.rank < peer:
        group.send(word, peer).wait()
    return shortest_ns / 2e9


def _bits_per_s(group: Messenger, peer: int, link: Link, clock_ns: Clock) -> float:
    """The rate at which messages come in when they follow each other without a gap. Both ends call."""
    num_bytes = min(MOST_BYTES, link.bits_per_s / 8 * TRANSFER_S)
    message = torch.zeros(max(1, round(num_bytes / NUM_MESSAGES)), dtype=torch.uint8)
    sends = [group.send(message, peer) for _ in range(NUM_MESSAGES)]
    arrivals_ns: list[int] = []
    for work in [group.recv(torch.empty_like(message), peer) for _ in range(NUM_MESSAGES)]:
        work.wait()
        arrivals_ns.append(clock_ns())
    for work in sends:
        work.wait()
    # The first one also needed the latency; from then on each arrives as soon as the link has carried it. Of the times
    # that half of them took, the median: a moment without a processor then changes little.
    half = NUM_MESSAGES // 2
    took_ns = statistics.median(arrivals_ns[index + half] - arrivals_ns[index] for index in range(half))
    return 8e9 * message.nbytes * half / max(took_ns, 1)


_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def _in_bits(bits_per_s: float) -> tuple[float, str]:
    """A rate in the largest unit that keeps it at 1 or above."""
    unit = max(
        (unit for unit, factor in _UNITS.items() if bits_per_s >= factor), key=_UNITS.__getitem__, default=""
    )
    return bits_per_s / _UNITS[unit], unit
