"""Workers find each other: each puts a card into a store and waits until all cards are there.

A worker whose card does not fit another's writes the reason into the store before it ends, so that all workers that
have come end at once with that reason.
"""

import contextlib
import json
import os
import platform
import socket
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from shoal.comm.liveness.judge import NO_PROGRESS_LIMIT_S, WARN_AFTER_S, SlowMemberWarning
from shoal.comm.store import SETTINGS, parsed, stored
from shoal.errors import GroupError, JoinError, JoinTimeoutError
from shoal.printable import printable

HEARD_S = 1.0
"""How long a worker that refuses waits for the others to read why: the store may end with its process."""


class Store(Protocol):
    """The part of torch's stores that groups use."""

    def set(self, key: str, value: str) -> None:
        """Write a key."""
        ...

    def get(self, key: str) -> bytes:
        """Read a key, waiting for it."""
        ...

    def add(self, key: str, value: int) -> int:
        """Add to a counter and return the new value."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""
        ...


@dataclass(frozen=True)
class Card:
    """Identifies a worker: its machine, its process, its settings."""

    rank: int
    host: str
    boot: str
    processes: str
    pid: int
    facts: dict[str, str]
    """What must be equal on all workers."""
    able: str = ""
    """What this worker supports, which may differ."""

    @classmethod
    def of_this_process(cls, rank: int, facts: Mapping[str, str], able: str) -> "Card":
        """The card of this worker."""
        linux = platform.system() == "Linux"
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip() if linux else socket.gethostname()
        processes = os.readlink("/proc/self/ns/pid") if linux else ""
        return cls(rank, socket.gethostname(), boot, processes, os.getpid(), dict(facts), able)

    @classmethod
    def read(cls, rank: int, text: bytes) -> "Card":
        """The card of another worker, possibly of another version of shoal."""
        try:
            entries: dict[str, Any] = parsed(text)
            pid: object = entries["pid"]
            card = cls(**{field.name: entries[field.name] for field in fields(cls) if field.name in entries})
            texts: list[Any] = [card.host, card.boot, card.processes, card.able]
            texts += [*card.facts, *card.facts.values()]
            if (
                card.rank != rank
                or not isinstance(pid, int)
                or not all(isinstance(text, str) for text in texts)
            ):
                raise TypeError
            facts = {printable(name): printable(value) for name, value in card.facts.items()}
            return replace(card, host=printable(card.host), facts=facts)
        except (JoinError, TypeError, AttributeError, KeyError) as error:
            raise JoinError(
                f"cannot read the card of rank {rank}: {text[:80]!r}",
                "Does it run another version of shoal, or does another program use this address and port?",
            ) from error

    def shares_machine_with(self, other: "Card") -> bool:
        """Whether both run on one kernel and see the same process numbers."""
        return (self.boot, self.processes) == (other.boot, other.processes)


def meet(
    store: Store,
    rank: int,
    size: int,
    timeout_s: float = NO_PROGRESS_LIMIT_S,
    facts: Mapping[str, str] | None = None,
    able: str = "",
) -> list[Card]:
    """All workers' cards, in rank order, once all have come.

    All `facts` (versions, configuration …) must agree; the error shows the first that does not, on both sides.
    """
    try:
        return _meet(store, rank, size, timeout_s, {"world size": str(size), **(facts or {})}, able)
    except GroupError:
        raise
    except RuntimeError as error:
        raise JoinError(
            f"rank {rank} lost the store where workers meet: {str(error).splitlines()[0]}",
            "Rank 0 or the launcher holds the store: see its output first.",
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
    started, warned = time.monotonic(), False
    try:
        while len(cards) < size:
            for other in range(size):
                if other not in cards and store.check([f"card/{other}"]):
                    cards[other] = Card.read(other, store.get(f"card/{other}"))
                    _compare(mine, cards[other])
            if len(cards) < size:
                if store.check(["refusal"]):
                    raise JoinError(*map(printable, stored(store.get("refusal"), str, str)))
                waited_s = time.monotonic() - started
                if waited_s > timeout_s:
                    raise _missing(cards, size, timeout_s)
                if waited_s > WARN_AFTER_S and not warned:
                    warned = True
                    missing = ", ".join(str(other) for other in range(size) if other not in cards)
                    warnings.warn(
                        f"{waited_s:.0f} s after rank {rank} joined, these ranks have not: {missing}. "
                        f"It waits for them, at most {timeout_s:g} s. {SETTINGS}",
                        SlowMemberWarning,
                        stacklevel=5,
                    )
                time.sleep(0.01)
    except JoinError as error:
        _refuse(store, error)
        raise
    return [cards[other] for other in range(size)]


def _refuse(store: Store, error: JoinError) -> None:
    """Tell all who have come why we go, and see that they have heard it."""
    with contextlib.suppress(RuntimeError):  # the store may be gone with its holder
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
    return JoinError(f"two workers claim rank {mine.rank}", "Start every rank once.")


def _missing(cards: Mapping[int, Card], size: int, timeout_s: float) -> JoinError:
    missing = [str(rank) for rank in range(size) if rank not in cards]
    who = f"rank {missing[0]} is" if len(missing) == 1 else f"ranks {', '.join(missing)} are"
    return JoinTimeoutError(
        f"{who} missing: {len(cards)} of {size} workers joined within {timeout_s:g} s",
        f"Were they started, with the same master address and port? {SETTINGS}",
    )


def _compare(mine: Card, theirs: Card) -> None:
    for name in sorted(mine.facts.keys() | theirs.facts.keys()):
        ours, others = mine.facts.get(name, "nothing"), theirs.facts.get(name, "nothing")
        if ours != others:
            raise JoinError(
                f"rank {mine.rank} has {name} {ours}, rank {theirs.rank} has {name} {others}",
                "Start every rank with the same settings.",
            )
