"""Workers find each other: everyone leaves a card in a store and waits until all cards are there."""

import json
import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from shoal.errors import JoinError

JOIN_TIMEOUT_S = 60.0


class Store(Protocol):
    """What we need of torch's stores."""

    def set(self, key: str, value: str) -> None:
        """Write a key."""
        ...

    def get(self, key: str) -> bytes:
        """Read a key, waiting for it."""
        ...

    def add(self, key: str, value: int) -> int:
        """Add to a counter and give the new value."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""
        ...


@dataclass(frozen=True)
class Card:
    """Who a worker is, and whether another shares its machine and sees its processes."""

    rank: int
    host: str
    boot: str
    processes: str
    pid: int
    facts: dict[str, str]
    """What must be the same on all workers."""
    able: str = ""
    """What this worker can do, which may differ."""

    @classmethod
    def of_this_process(cls, rank: int, facts: Mapping[str, str], able: str) -> "Card":
        """The card of this worker."""
        linux = platform.system() == "Linux"
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip() if linux else socket.gethostname()
        processes = os.readlink("/proc/self/ns/pid") if linux else ""
        return cls(rank, socket.gethostname(), boot, processes, os.getpid(), dict(facts), able)

    def shares_machine_with(self, other: "Card") -> bool:
        """Whether both run on one kernel and see the same process numbers."""
        return (self.boot, self.processes) == (other.boot, other.processes)


def meet(
    store: Store,
    rank: int,
    size: int,
    timeout_s: float = JOIN_TIMEOUT_S,
    facts: Mapping[str, str] | None = None,
    able: str = "",
) -> list[Card]:
    """Everyone's card, in rank order, once all have come.

    All `facts` (versions, configuration …) must agree; the first that does not is shown from both sides.
    """
    try:
        return _meet(store, rank, size, timeout_s, {"world size": str(size), **(facts or {})}, able)
    except RuntimeError as error:
        raise JoinError(
            f"rank {rank} lost the store where workers meet: {str(error).splitlines()[0]}",
            "The store lives with rank 0 or with the launcher: look at what happened there first.",
        ) from error


def _meet(
    store: Store, rank: int, size: int, timeout_s: float, facts: Mapping[str, str], able: str
) -> list[Card]:
    if store.add(f"claim/{rank}", 1) > 1:
        raise JoinError(f"two workers say they are rank {rank}", "Start every rank once.")
    mine = Card.of_this_process(rank, facts, able)
    store.set(f"card/{rank}", json.dumps(asdict(mine)))
    cards: dict[int, Card] = {}
    deadline = time.monotonic() + timeout_s
    while len(cards) < size:
        for other in range(size):
            if other not in cards and store.check([f"card/{other}"]):
                cards[other] = Card(**json.loads(store.get(f"card/{other}")))
                _compare(mine, cards[other])
        if len(cards) < size:
            if time.monotonic() > deadline:
                raise _missing(cards, size, timeout_s)
            time.sleep(0.01)
    return [cards[other] for other in range(size)]


def _missing(cards: Mapping[int, Card], size: int, timeout_s: float) -> JoinError:
    joined = ", ".join(map(str, sorted(cards)))
    missing = ", ".join(str(rank) for rank in range(size) if rank not in cards)
    return JoinError(
        f"not all of {size} workers came within {timeout_s:g} s. joined: {joined}; missing: {missing}",
        "Were they started, with the same master address and port?",
    )


def _compare(mine: Card, theirs: Card) -> None:
    for name in sorted(mine.facts.keys() | theirs.facts.keys()):
        ours, others = mine.facts.get(name, "nothing"), theirs.facts.get(name, "nothing")
        if ours != others:
            raise JoinError(f"rank {mine.rank} has {name} {ours}, rank {theirs.rank} has {name} {others}")
