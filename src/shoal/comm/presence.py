"""Signs of life through a store, for workers that share no memory.

Everyone keeps three short entries: how long ago it last made progress, why it ended, and which collective
it waits in. They are written about once a second, and only read by who has been waiting for a while. For
members on this machine the operating system is asked as well (`watch.py`): it knows of deaths and stops
at once.
"""

import json
import time
import warnings
from collections.abc import Sequence
from typing import Any, final

from shoal.comm import stacks
from shoal.comm.goodbye import at_exit
from shoal.comm.group import SlowMemberWarning
from shoal.comm.rendezvous import Card
from shoal.comm.watch import Watch
from shoal.errors import GroupError, MemberError, MismatchError

WRITE_EVERY_S = 0.5
"""And at least four times within the limit after which a silent member is given up."""
SLOW_AFTER_S = 2.0

ENTERING = -1
"""In place of a collective's number: we wait for connections, and so for whoever has not entered the group."""
MESSAGE = 0
"""In place of a collective's number: we wait for a message from the only other."""

SURE_OF_DEATH_S = 0.08
SURE_OF_LEAVING_S = 1.0
"""Whoever is gone may have done its part: what it sent last is given so long to arrive."""
SURE_OF_BREAK_S = 0.04
"""The same once a connection has broken: then only its last words can still come."""

HOLD_S = 1.0
"""After an error, how long whoever holds the store keeps it for the others to read of it."""


@final
class Presence:
    """What one worker knows of the others, by their ranks in the world.

    `holder` is the rank in whose process the store lives; None where a launcher has it.
    """

    def __init__(
        self, store: Any, rank: int, cards: Sequence[Card], limit_s: float, holder: int | None = None
    ) -> None:
        self.rank, self.limit_s = rank, limit_s
        self._write_every_s = min(WRITE_EVERY_S, limit_s / 4)
        self._store, self._cards, self._holder = store, list(cards), holder
        self._near = [
            card.rank for card in cards if card.rank != rank and card.shares_machine_with(cards[rank])
        ]
        self._watch = Watch()
        self._watch.add(cards[other].pid for other in self._near)
        self._progress = time.monotonic()
        self._written = 0.0
        self._promised = False
        self._seen: dict[int, tuple[str, float, float]] = {}
        """Per member: its last entry, the idle time it stated, and when we first saw that entry."""
        self._gone_since: dict[int, float] = {}
        self._warned: set[int] = set()
        self._count = 0
        self._ended = False
        store.set(f"stack/{rank}", str(stacks.listen()))
        store.set(f"end/{rank}", "")
        self._write_idle(0.0)
        self._forget_exit = at_exit(self._leave)

    # What we tell.

    def enter(self, group: str) -> None:
        """Begin with a new group: nobody waits in it yet."""
        self._store.set(f"at/{group}/{self.rank}", "0")

    def beat(self, busy_s: float = 0.0) -> None:
        """Note progress, or that there will have been some in so many seconds; tell it now and then."""
        self._progress = time.monotonic()
        if busy_s or self._promised or self._progress - self._written > self._write_every_s:
            self._promised = busy_s > 0
            self._write_idle(-busy_s)

    def _write_idle(self, idle_s: float) -> None:
        self._written = time.monotonic()
        self._count += 1
        self._tell(f"idle/{self.rank}", json.dumps([self._count, idle_s]))

    def _tell(self, key: str, value: str) -> None:
        try:
            self._store.set(key, value)
        except RuntimeError:
            # The store is gone with whoever held it; the next look will say so.
            self._ended = True

    def end(self, error: BaseException | None) -> None:
        """Tell why this worker goes: an error, or nothing. The first reason is kept."""
        if self._ended:
            return
        self._ended = True
        if isinstance(error, MemberError):
            reason, rank, message = error.reason, error.rank, error.message
        elif isinstance(error, MismatchError):
            reason, rank, message = "mismatch", self.rank, error.message
        elif error is not None:
            reason, rank = "failed", self.rank
            message = f"rank {self.rank} failed: {type(error).__name__}: {error}"
        else:
            reason, rank, message = "left", self.rank, ""
        self._tell(f"end/{self.rank}", json.dumps([reason, rank, message]))
        if error is not None:
            self._hold_store(HOLD_S, HOLD_S)

    def close(self) -> None:
        """Say good-bye, and let go of what watches the others."""
        self.end(None)
        if self.rank != self._holder:  # who has the store keeps it until its process ends
            self._forget_exit()
            self._watch.close()

    def _leave(self, error: BaseException | None) -> None:
        """Our process ends."""
        self.end(error)
        if error is None:
            self._hold_store(self.limit_s)

    def _hold_store(self, silence_s: float, most_s: float = float("inf")) -> None:
        """If the store is ours, wait until the others are gone, or silent for so long: they may still need it."""
        if self.rank != self._holder:
            return
        others = {card.rank for card in self._cards} - {self.rank}
        started = heard = time.monotonic()
        entries: dict[int, bytes] = {}
        while others and time.monotonic() < min(heard + silence_s, started + most_s):
            try:
                for rank in tuple(others):
                    if rank in self._near and self._out_of_it(self._cards[rank].pid):
                        others.remove(rank)
                    elif self._store.check([f"end/{rank}", f"idle/{rank}"]):
                        end, idle = self._read("end", "idle", ranks=[rank])
                        if end:
                            others.remove(rank)
                        elif entries.get(rank) != idle:
                            entries[rank], heard = idle, time.monotonic()
                time.sleep(0.02)
            except (RuntimeError, KeyboardInterrupt):
                return

    def _out_of_it(self, pid: int) -> bool:
        return self._watch.dead(pid) or self._watch.stopped(pid)

    def _read(self, *kinds: str, ranks: Sequence[int]) -> list[bytes]:
        return self._store.multi_get([f"{kind}/{rank}" for rank in ranks for kind in kinds])

    # What we see.

    def forget(self) -> None:
        """We ourselves were stopped for a while: what the others told before that is no measure of them."""
        self._watch.forget_stops()
        self._seen.clear()
        self._gone_since.clear()

    def look(
        self,
        group: str,
        ranks: Sequence[int],
        sequence: int,
        label: str,
        waited_s: float,
        broken: bool = False,
    ) -> GroupError | None:
        """The error for a member that is waited for in vain; None when there is still hope.

        `sequence` is the collective we wait in, or ENTERING, or MESSAGE. `broken` says that a connection has broken.
        """
        others = [rank for rank in ranks if rank != self.rank]
        stopped, error = self._store_is_stopped(label)
        if stopped:
            return error
        try:
            error = self._dead(others, label, broken)
            if error is not None:
                return error
            if sequence == ENTERING:
                # To connect, all must run: also who has entered.
                for rank in others:
                    if rank in self._near and self._watch.stopped(self._cards[rank].pid):
                        return self._stopped(rank, label)
            missing = self._missing(group, others, sequence)
            entries = [value.decode() for value in self._read("end", "idle", ranks=missing)]
            return self._judge(missing, entries, label, waited_s, broken)
        except RuntimeError as error:
            return self._without_store(label, error)

    def _missing(self, group: str, others: Sequence[int], sequence: int) -> list[int]:
        """Who has not come to where we wait."""
        if sequence == MESSAGE:
            return list(others)
        keys = [f"at/{group}/{rank}" for rank in others]
        if sequence == ENTERING:
            absent = [rank for rank, key in zip(others, keys, strict=True) if not self._store.check([key])]
            return [rank for rank in absent if self._store.check([f"end/{rank}", f"idle/{rank}"])]
        self._store.set(f"at/{group}/{self.rank}", str(sequence))
        positions = [int(value) for value in self._store.multi_get(keys)]
        return [rank for rank, position in zip(others, positions, strict=True) if position < sequence]

    def _judge(
        self, missing: Sequence[int], entries: Sequence[str], label: str, waited_s: float, broken: bool
    ) -> GroupError | None:
        newest = float("inf")
        for rank, end, idle in zip(missing, entries[::2], entries[1::2], strict=True):
            if end:
                error = self._ended_member(rank, label, end, broken)
                if error is not None:
                    return error
                continue
            idle_s = self._idle(rank, idle)
            newest = min(newest, idle_s)
            error = self._standstill(rank, label, idle_s, waited_s)
            if error is not None:
                return error
        # Whoever waits for a member that makes progress is not stuck either.
        self._write_idle(min(time.monotonic() - self._progress, newest))
        return None

    def _ended_member(self, rank: int, label: str, end: str, broken: bool) -> GroupError | None:
        """The error of a member that said why it goes; one that left in good order may have done its part first."""
        reason, blamed, message = json.loads(end)
        patience_s = SURE_OF_BREAK_S if broken or reason != "left" else SURE_OF_LEAVING_S
        return _last_words(rank, label, reason, blamed, message) if self._sure(rank, patience_s) else None

    def _sure(self, rank: int, patience_s: float) -> bool:
        return time.monotonic() - self._gone_since.setdefault(rank, time.monotonic()) >= patience_s

    def _dead(self, others: Sequence[int], label: str, broken: bool) -> GroupError | None:
        """A neighbour that has died, once what it sent last has had time to arrive."""
        for rank in others:
            if rank in self._near and self._watch.dead(self._cards[rank].pid):
                text = self._last_entry(rank)
                if text:
                    error = self._ended_member(rank, label, text, broken)
                else:
                    sure = self._sure(rank, SURE_OF_BREAK_S if broken else SURE_OF_DEATH_S)
                    error = self._died(rank, label) if sure else None
                if error is not None:
                    return error
        return None

    def _last_entry(self, rank: int) -> str:
        """What a member that has ended left behind, if it did."""
        if rank == self._holder:
            return ""  # it took the store with it
        try:
            return self._store.get(f"end/{rank}").decode()
        except RuntimeError:
            return ""

    def _died(self, rank: int, label: str) -> MemberError:
        lost = "; with it went the store where workers meet" if rank == self._holder else ""
        return MemberError(
            f"rank {rank} died before {label} (process {self._cards[rank].pid} has ended{lost})",
            "Its own log, or the launcher, says what happened to it.",
            rank=rank,
            reason="died",
        )

    # The store itself may be gone, or stopped with its holder.

    def _without_store(self, label: str, error: RuntimeError) -> GroupError:
        """Say who took the store away. Its connections break a little before its process counts as dead."""
        deadline = time.monotonic() + HOLD_S
        while time.monotonic() < deadline:
            dead = [rank for rank in self._near if self._watch.dead(self._cards[rank].pid)]
            if dead:
                # The holder may have ended because of another.
                return self._died(next((rank for rank in dead if rank != self._holder), dead[0]), label)
            time.sleep(0.02)
        if self._holder is not None and self._holder not in self._near:
            card = self._cards[self._holder]
            return MemberError(
                f"rank {card.rank} on {card.host} is gone before {label}, and with it the store where workers meet",
                "Its own log says what happened to it.",
                rank=card.rank,
                reason="died",
            )
        return GroupError(
            f"{label}: the store where workers meet is gone: {str(error).splitlines()[0]}",
            "It lives with the launcher: look at what happened there first.",
        )

    def _store_is_stopped(self, label: str) -> tuple[bool, MemberError | None]:
        """Whether asking the store would only make us wait, and the error once that is certain."""
        if self._holder is None or self._holder not in self._near:
            return False, None
        pid = self._cards[self._holder].pid
        certain = self._watch.stopped(pid)
        return self._watch.seen_stopped(pid), self._stopped(self._holder, label) if certain else None

    # Members that live.

    def _idle(self, rank: int, entry: str) -> float:
        """How long a member has made no progress, as far as we can know; less than 0 while it said it is busy."""
        now = time.monotonic()
        if rank not in self._seen or self._seen[rank][0] != entry:
            self._seen[rank] = (entry, json.loads(entry)[1], now)
        _, stated_s, first_seen = self._seen[rank]
        return stated_s + now - first_seen

    def _stopped(self, rank: int, label: str) -> MemberError:
        return MemberError(
            f"rank {rank} has not reached {label}: it is stopped (SIGSTOP)",
            f"Continue it with: kill -CONT {self._cards[rank].pid}",
            rank=rank,
            reason="stopped",
        )

    def _standstill(self, rank: int, label: str, idle_s: float, waited_s: float) -> MemberError | None:
        pid, near = self._cards[rank].pid, rank in self._near
        if near and self._watch.stopped(pid):
            return self._stopped(rank, label)
        # A process with a small share of a processor is slow, not stuck.
        starved_s = self._watch.starved_s(pid, self._seen[rank][0]) if near else 0.0
        if idle_s - starved_s > self.limit_s:
            stack = (
                stacks.ask(pid, int(self._store.get(f"stack/{rank}"))) if near else "    (on another machine)"
            )
            return MemberError(
                f"rank {rank} has not reached {label}: it is alive, but has made no progress for {idle_s:.1f} s"
                if near
                else f"rank {rank} on {self._cards[rank].host} has not reached {label}: silent for {idle_s:.1f} s",
                f"It is here:\n{stack}",
                rank=rank,
                reason="stuck",
            )
        if waited_s > SLOW_AFTER_S and idle_s >= 0 and rank not in self._warned:
            self._warned.add(rank)
            warnings.warn(
                f"rank {rank} is slow: others have waited {waited_s:.1f} s for it at {label}",
                SlowMemberWarning,
                stacklevel=6,
            )
        return None


def _last_words(rank: int, label: str, reason: str, blamed: int, message: str) -> GroupError:
    if reason == "mismatch":
        return MismatchError(message)
    if reason == "left":
        return MemberError(f"rank {rank} left the group before {label}", rank=rank, reason="left")
    return MemberError(message, rank=blamed, reason=reason)
