"""Workers find each other: everyone leaves a card in a store and waits until all cards are there.

Whoever finds that a card does not fit its own says so in the store before it goes, so that all who have come end at
once and with a reason, also those who wait for somebody else.
"""

import contextlib
import json
import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from shoal.errors import JoinError, JoinTimeoutError

JOIN_TIMEOUT_S = 60.0
HEARD_S = 1.0
"""How long whoever refuses waits until the others have heard why: the store may end with its process."""


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

    @classmethod
    def read(cls, rank: int, text: bytes) -> "Card":
        """The card that a worker left, be it of another version."""
        try:
            entries: dict[str, Any] = json.loads(text)
            return cls(**{field.name: entries[field.name] for field in fields(cls) if field.name in entries})
        except (ValueError, TypeError) as error:
            raise JoinError(
                f"rank {rank} left a card that cannot be read: {text[:80]!r}",
                "Does it run another version of shoal?",
            ) from error

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
    except JoinError:
        raise
    except RuntimeError as error:
        raise JoinError(
            f"rank {rank} lost the store where workers meet: {str(error).splitlines()[0]}",
            "The store lives with rank 0 or with the launcher: look at what happened there first.",
        ) from error


def _meet(
    store: Store, rank: int, size: int, timeout_s: float, facts: Mapping[str, str], able: str
) -> list[Card]:
    mine = Card.of_this_process(rank, facts, able)
    if store.add(f"claim/{rank}", 1) > 1:
        raise _claimed(store, mine)
    store.set(f"card/{rank}", json.dumps(asdict(mine)))
    store.add("come", 1)
    cards: dict[int, Card] = {}
    deadline = time.monotonic() + timeout_s
    try:
        while len(cards) < size:
            for other in range(size):
                if other not in cards and store.check([f"card/{other}"]):
                    cards[other] = Card.read(other, store.get(f"card/{other}"))
                    _compare(mine, cards[other])
            if len(cards) < size:
                if store.check(["refusal"]):
                    raise JoinError(*json.loads(store.get("refusal")))
                if time.monotonic() > deadline:
                    raise _missing(cards, size, timeout_s)
                time.sleep(0.01)
    except JoinError as error:
        _refuse(store, error)
        raise
    return [cards[other] for other in range(size)]


def _refuse(store: Store, error: JoinError) -> None:
    """Tell all who have come why we go, and see that they have heard it."""
    with contextlib.suppress(RuntimeError):  # the store may have gone already, with whoever held it
        if not store.check(["refusal"]):
            store.set("refusal", json.dumps([error.message, error.hint]))
        store.add("heard", 1)
        deadline = time.monotonic() + HEARD_S
        while store.add("heard", 0) < store.add("come", 0) and time.monotonic() < deadline:
            time.sleep(0.01)


def _claimed(store: Store, mine: Card) -> JoinError:
    other = Card.read(mine.rank, store.get(f"card/{mine.rank}"))
    if (other.pid, other.boot) == (mine.pid, mine.boot):
        return JoinError(
            f"rank {mine.rank} has joined already",
            "Join once, and keep the group; `split` gives further ones.",
        )
    return JoinError(f"two workers say they are rank {mine.rank}", "Start every rank once.")


def _missing(cards: Mapping[int, Card], size: int, timeout_s: float) -> JoinError:
    joined = ", ".join(map(str, sorted(cards)))
    missing = ", ".join(str(rank) for rank in range(size) if rank not in cards)
    return JoinTimeoutError(
        f"not all of {size} workers came within {timeout_s:g} s. joined: {joined}; missing: {missing}",
        "Were they started, with the same master address and port?",
    )


def _compare(mine: Card, theirs: Card) -> None:
    for name in sorted(mine.facts.keys() | theirs.facts.keys()):
        ours, others = mine.facts.get(name, "nothing"), theirs.facts.get(name, "nothing")
        if ours != others:
            raise JoinError(
                f"rank {mine.rank} has {name} {ours}, rank {theirs.rank} has {name} {others}",
                "Start every rank with the same settings.",
            )
