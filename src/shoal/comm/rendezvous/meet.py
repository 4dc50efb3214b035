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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, final

from shoal.comm.liveness.judge import WARN_AFTER_S, SlowMemberWarning, speaks
from shoal.comm.liveness.limits import NO_PROGRESS_LIMIT_S
from shoal.comm.rendezvous import secret
from shoal.comm.rendezvous.store import SETTINGS, parsed, stored
from shoal.comm.rendezvous.tagged_store import MOST_CHARACTERS, TaggedStore, tagged
from shoal.errors import GroupError, JoinError, JoinTimeoutError
from shoal.printable import printable

COMPARE_SECRETS_EVERY_S = 0.3
HEARD_S = 1.0
"""How long a worker that refuses waits for the others to read why: the store may end with its process."""


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
    address: str = ""
    """The address on which this worker listens for the others."""

    @classmethod
    def of_this_process(
        cls, rank: int, facts: Mapping[str, str], able: str = "", address: str = ""
    ) -> "Card":
        """The card of this worker."""
        linux = platform.system() == "Linux"
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip() if linux else socket.gethostname()
        processes = os.readlink("/proc/self/ns/pid") if linux else ""
        return cls(rank, socket.gethostname(), boot, processes, os.getpid(), dict(facts), able, address)

    @classmethod
    def read(cls, rank: int, text: str) -> "Card":
        """The card of another worker, possibly of another version of shoal."""
        try:
            entries: dict[str, Any] = parsed(text)
            pid: object = entries["pid"]
            card = cls(**{field.name: entries[field.name] for field in fields(cls) if field.name in entries})
            texts: list[Any] = [card.host, card.boot, card.processes, card.able, card.address]
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
    store: Any,
    rank: int,
    size: int,
    timeout_s: float = NO_PROGRESS_LIMIT_S,
    facts: Mapping[str, str] | None = None,
    able: str = "",
    address: str = "",
) -> list[Card]:
    """All workers' cards, in rank order, once all have come.

    All `facts` (versions, configuration …) must agree; the error shows the first that does not, on both sides.
    `store` is one of torch's, or tagged already.
    """
    try:
        mine = Card.of_this_process(rank, {"world size": str(size), **(facts or {})}, able, address)
        return _Meeting(tagged(store, rank), mine, size, timeout_s).cards()
    except GroupError:
        raise
    except RuntimeError as error:
        raise JoinError(
            f"rank {rank} lost the store where workers meet: {str(error).splitlines()[0]}",
            "Rank 0 or the launcher holds the store: see its output first.",
        ) from error


@final
class _Meeting:
    """One worker's side of a meeting."""

    def __init__(self, store: TaggedStore, mine: Card, size: int, timeout_s: float) -> None:
        self._store, self._mine, self._size, self._timeout_s = store, mine, size, timeout_s
        self._cards: dict[int, Card] = {}
        self._has_claimed = False

    def cards(self) -> list[Card]:
        started, warned = time.monotonic(), False
        next_comparison_s = COMPARE_SECRETS_EVERY_S
        self._store.note_secret()
        try:
            while True:
                self._look()
                if len(self._cards) == self._size:
                    return [self._cards[rank] for rank in range(self._size)]
                waited_s = time.monotonic() - started
                if waited_s > next_comparison_s:
                    next_comparison_s += COMPARE_SECRETS_EVERY_S
                    self._compare_secrets()
                if waited_s > self._timeout_s:
                    raise self._missing()
                if waited_s > WARN_AFTER_S and not warned:
                    warned = True
                    self._warn(waited_s)
                time.sleep(0.01)
        except JoinError as error:
            self._refuse(error)
            raise

    def _look(self) -> None:
        """Publish our card as soon as the run is known, and read all cards that have come."""
        if not self._store.begin():
            return
        rank = self._mine.rank
        if not self._has_claimed:
            card = json.dumps(asdict(self._mine))
            if self._store.has_rival or self._store.claim(f"card/{rank}", card, rank) != card:
                raise self._claimed(self._store.read(f"card/{rank}", rank))
            self._has_claimed = True
        self._read_cards()
        if len(self._cards) < self._size:
            refusal = self._store.read("refusal")
            if refusal is not None:
                self._read_cards()  # the refusing worker may have come meanwhile: then the error shows our side first
                raise JoinError(*map(printable, stored(refusal, str, str)))

    def _read_cards(self) -> None:
        """Read and compare the cards that have come."""
        for other in range(self._size):
            if other not in self._cards:
                text = self._store.read(f"card/{other}", other)
                if text is not None:
                    self._cards[other] = Card.read(other, text)
                    _compare(self._mine, self._cards[other])

    def _refuse(self, error: JoinError) -> None:
        """Report to all who have come why we go, and see that they have read it."""
        if not self._has_claimed:
            return
        with contextlib.suppress(RuntimeError):  # the store may be gone with its holder
            if self._store.read("refusal") is None:
                texts = [error.message[:MOST_CHARACTERS], error.hint[:MOST_CHARACTERS]]
                self._store.set("refusal", json.dumps(texts))
            self._store.set(f"heard/{self._mine.rank}", "")
            deadline = time.monotonic() + HEARD_S
            waiting = [rank for rank in range(self._size) if rank != self._mine.rank]
            while waiting and time.monotonic() < deadline:
                waiting = [
                    rank
                    for rank in waiting
                    if self._store.read(f"card/{rank}", rank) is not None
                    and self._store.read(f"heard/{rank}", rank) is None
                ]
                time.sleep(0.01)

    def _claimed(self, text: str | None) -> JoinError:
        rank = self._mine.rank
        other = Card.read(rank, text) if text is not None else None
        if other is not None and (other.pid, other.boot) == (self._mine.pid, self._mine.boot):
            return JoinError(
                f"rank {rank} has joined already",
                "Join once, and keep the group; `split` gives further ones.",
            )
        return JoinError(f"two workers claim rank {rank}", "Start every rank once.")

    # Workers that have not come, or have another secret.

    def _compare_secrets(self) -> None:
        """A worker without a secret, which believes everyone, ends at once where others have one."""
        if not self._store.has_secret:
            notes = self._store.noted_secrets(self._absent())
            for rank, kind in notes.items():
                if kind == "another":
                    raise JoinError(
                        f"rank {rank} has a secret, rank {self._mine.rank} has none", secret.SETTINGS
                    )

    def _absent(self) -> list[int]:
        return [rank for rank in range(self._size) if rank not in self._cards and rank != self._mine.rank]

    def _late(self) -> tuple[list[int], str]:
        """The missing ranks, and a sentence about workers that are there with another secret."""
        absent = self._absent()
        notes = self._store.noted_secrets(absent)
        # Before rank 0 has begun the run, the cards of others cannot be read.
        late = [rank for rank in absent if notes.get(rank) != "the same"] or absent
        strange = [str(rank) for rank in absent if notes.get(rank) in ("another", "none")]
        if not strange:
            return late, ""
        return (
            late,
            f"{_ranks(strange, 'has', 'have').capitalize()} another secret, or none. {secret.SETTINGS}",
        )

    def _warn(self, waited_s: float) -> None:
        late, sentence = self._late()
        if not speaks(self._mine.rank, range(self._size), late):
            return
        warnings.warn(
            f"{waited_s:.0f} s after rank {self._mine.rank} joined, these ranks have not: "
            f"{', '.join(map(str, late))}. It waits for them, at most {self._timeout_s:g} s. "
            + f"{sentence} {SETTINGS}".lstrip(),
            SlowMemberWarning,
            stacklevel=7,  # the program's line, through shoal.join
        )

    def _missing(self) -> JoinError:
        late, sentence = self._late()
        return JoinTimeoutError(
            f"{_ranks(late, 'is', 'are')} missing: {self._size - len(late)} of {self._size} workers joined "
            f"within {self._timeout_s:g} s",
            f"{sentence or 'Were they started, with the same master address and port?'} {SETTINGS}",
        )


def _ranks(ranks: Sequence[object], one: str, several: str) -> str:
    """Ranks and a verb.

    >>> _ranks([1], "is", "are"), _ranks([1, 2], "is", "are")
    ('rank 1 is', 'ranks 1, 2 are')
    """
    return f"rank {ranks[0]} {one}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} {several}"


def _compare(mine: Card, theirs: Card) -> None:
    for name in sorted(mine.facts.keys() | theirs.facts.keys()):
        ours, others = mine.facts.get(name, "nothing"), theirs.facts.get(name, "nothing")
        if ours != others:
            raise JoinError(
                f"rank {mine.rank} has {name} {ours}, rank {theirs.rank} has {name} {others}",
                "Start every rank with the same settings.",
            )
