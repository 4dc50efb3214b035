"""What is known of members that share no memory with this one: read from their entries in a store (`signs.py`).

Only a member that has waited for a while looks. For members on this machine the operating system is asked as well
(`watch.py`): it knows of deaths and stops at once. What the facts mean is decided in `liveness/judge.py`.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, final

from shoal.comm.liveness import judge
from shoal.comm.liveness.judge import (
    BROKEN_FOR_S,
    SIGN_OF_WAIT_S,
    STOP_GRACE_S,
    STORE_ANSWERS_S,
    Facts,
    Judge,
    LastWords,
    cause_of,
    to_blame,
)
from shoal.comm.liveness.watch import ProcessWatch, stack_of
from shoal.comm.over_torch.headers import NO_RANK
from shoal.comm.over_torch.signs import SignsOfLife
from shoal.comm.rendezvous.meet import Card
from shoal.comm.rendezvous.store import Distant, stored, stored_number
from shoal.comm.rendezvous.tagged_store import tagged
from shoal.errors import GroupError, JoinError
from shoal.printable import printable

ENTERING = -1
"""In place of a collective's number: this member waits for connections, and so for all that have not entered."""
MESSAGE = 0
"""In place of a collective's number: it waits for a message from the only other."""
FROM_ANYONE = -2
"""In place of a collective's number: it waits for a message from any of the others."""


@final
class Presence:
    """What one worker knows of the others, by their ranks in the world.

    `holder` is the rank in whose process the store lives; None where a launcher has it.
    """

    def __init__(
        self, store: Any, rank: int, cards: Sequence[Card], limit_s: float, holder: int | None = None
    ) -> None:
        self._rank, self._judge = rank, Judge(limit_s)
        ours = tagged(store, rank)
        self._cards, self._holder = list(cards), holder
        self._near = [
            card.rank for card in cards if card.rank != rank and card.shares_machine_with(cards[rank])
        ]
        all_are_near = len(self._near) == len(cards) - 1
        if rank == holder or (holder is None and all_are_near):
            self._store, self._distant = ours, None
        else:
            self._distant = Distant(
                ours.connection, min(limit_s, STOP_GRACE_S if holder in self._near else STORE_ANSWERS_S)
            )
            self._store = ours.through(self._distant)
        self._watch = ProcessWatch()
        self._watch.add(cards[other].pid for other in self._near)
        self._seen: dict[int, tuple[str, float, int, float]] = {}
        """Per member: its last entry, the idle time in it, for whom it waits, and when the entry was first seen."""
        self._gone_since: dict[int, float] = {}
        self.culprit: Callable[[], int] = lambda: NO_RANK
        """The member whose end was the first, as broken connections show, or NO_RANK."""
        keeps_for = {card.rank for card in cards} - {rank} if rank == holder else set[int]()
        self.signs = SignsOfLife(self._store, rank, limit_s, keeps_for, self._is_out)

    def close(self) -> None:
        """Report that this worker leaves, and stop watching the others."""
        self.signs.end(None)
        if self._rank != self._holder:  # the holder of the store keeps it until its process ends
            self.signs.forget_exit()
            self._watch.close()
            if self._distant is not None:
                self._distant.close()

    def _is_out(self, rank: int) -> bool:
        """Whether a neighbour is dead, or has been stopped for too long."""
        return self._is_dead(rank) or self._judge.stopped_too_long(self._stopped_s(rank))

    def _read(self, *kinds: str, ranks: Sequence[int]) -> list[str]:
        """The members' entries; an empty text where a member has not written any."""
        values = self._store.read_all([(f"{kind}/{rank}", rank) for rank in ranks for kind in kinds])
        return [value or "" for value in values]

    def forget(self) -> None:
        """Forget earlier observations, because this process itself was paused."""
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
        """The error for a member that will not come; None while it may still come.

        `sequence` is the collective that this member waits in, or ENTERING, MESSAGE or FROM_ANYONE. `broken` says that
        a connection has broken.
        """
        return self._asking_store(label, lambda: self._look(group, ranks, sequence, label, waited_s, broken))

    def check(self, ranks: Sequence[int], label: str, waited_s: float) -> GroupError | None:
        """The error for a member that will not come, for a wait outside of the group's calls."""

        def ask() -> GroupError | None:
            facts = self._all_facts([rank for rank in ranks if rank != self._rank], label, waited_s, False)
            error = self._judge.judge_idle(facts)
            if error is None and waited_s:
                self._note_wait(facts)
            return error

        return self._asking_store(label, ask)

    def _asking_store(self, label: str, ask: Callable[[], GroupError | None]) -> GroupError | None:
        """The error that `ask` finds in the store, or the one for a store that is gone or stopped."""
        holder_stopped, error = self._store_is_stopped(label)
        if holder_stopped:
            return error
        try:
            return ask()
        except JoinError as error:  # a value in the store that shoal did not write
            return error
        except RuntimeError as error:
            return self._without_store(label, error)

    def _look(
        self, group: str, ranks: Sequence[int], sequence: int, label: str, waited_s: float, broken: bool
    ) -> GroupError | None:
        others = [rank for rank in ranks if rank != self._rank]
        dead = [] if sequence == FROM_ANYONE else [rank for rank in others if self._is_dead(rank)]
        facts = [self._facts(rank, label, waited_s, broken, self._last_entry(rank)) for rank in dead]
        error = self._judge.judge_all(facts)
        if error is not None:
            return error
        if sequence == ENTERING:
            # All must run to connect, also members that have entered.
            for rank in others:
                if self._judge.stopped_too_long(self._stopped_s(rank)):
                    return judge.stopped(rank, label, self._cards[rank].pid)
        missing = self._missing(group, others, sequence)
        if not missing and sequence != ENTERING:
            return self._arrived(others, label, waited_s)
        facts = self._all_facts(missing, label, waited_s, broken)
        if sequence == FROM_ANYONE:
            error = self._judge.judge_any(facts)
        else:
            is_alone = sequence == MESSAGE
            error = self._judge.judge_all(facts, is_alone or judge.speaks(self._rank, ranks, missing))
        if error is None:
            self._note_wait(facts)
        return error

    def _note_wait(self, members: Sequence[Facts]) -> None:
        """Report for whom this member waits. If one of them makes progress, this member is not stuck either.

        Not if they wait for each other: then one would pass on to the other, again and again, what it has from it.
        """
        idle = [
            each.silent_s
            for each in members
            if each.last_words is None and (each.is_innocent or not each.waits)
        ]
        self.signs.wait_for(min(idle, default=float("inf")), to_blame(members).rank if members else NO_RANK)

    def _missing(self, group: str, others: Sequence[int], sequence: int) -> list[int]:
        """The members that have not reached the collective that this one waits in, or are stopped."""
        if sequence in (MESSAGE, FROM_ANYONE):
            return list(others)
        if sequence == ENTERING:
            known = [
                rank for rank, idle in zip(others, self._read("idle", ranks=others), strict=True) if idle
            ]
            failed = [
                end != "" and _last_words(end).reason != "left" for end in self._read("end", ranks=known)
            ]
            # A member that has entered and left again may have connected; a member that has failed has not.
            return [
                rank
                for rank, has_failed in zip(known, failed, strict=True)
                if has_failed or self._store.read(f"at/{group}/{rank}", rank) is None
            ]
        self.signs.wait_in(group, sequence)
        positions = [stored_number(value or "0") for value in self._read(f"at/{group}", ranks=others)]
        return [
            rank
            for rank, position in zip(others, positions, strict=True)
            if position < sequence or self._stopped_s(rank) > 0
        ]

    def _arrived(self, others: Sequence[int], label: str, waited_s: float) -> GroupError | None:
        """All members are here, and data moves for as long as it takes; but each reports meanwhile that it waits."""
        self.signs.wait_for(float("inf"))
        for rank, entry in zip(others, self._read("idle", ranks=others), strict=True):
            facts = self._facts(rank, label, waited_s, False, "", entry)
            silent_s = time.monotonic() - self._seen[rank][3]
            error = self._judge.judge(facts._replace(silent_s=silent_s, has_arrived=True, waits_for=None))
            if error is not None:
                return error
        return None

    # Facts.

    def _all_facts(self, ranks: Sequence[int], label: str, waited_s: float, broken: bool) -> list[Facts]:
        entries = self._read("end", "idle", ranks=ranks)
        return [
            self._facts(rank, label, waited_s, broken, end, idle)
            for rank, end, idle in zip(ranks, entries[::2], entries[1::2], strict=True)
        ]

    def _facts(self, rank: int, label: str, waited_s: float, broken: bool, end: str, idle: str = "") -> Facts:
        """What is known of a member: `end` and `idle` are its entries."""
        card, near = self._cards[rank], rank in self._near
        last_words = _last_words(end) if end else None
        dead = self._is_dead(rank)
        now = time.monotonic()
        facts = Facts(
            rank,
            label,
            waited_s,
            last_words=last_words,
            dead=dead,
            gone_for_s=now - self._gone_since.setdefault(rank, now) if dead or last_words else 0.0,
            connection_broken=broken,
            pid=card.pid,
            host="" if near else card.host,
            lost="; with it went the store where workers meet" if rank == self._holder else "",
        )
        if dead or last_words is not None:
            return facts
        return facts._replace(
            stopped_s=self._stopped_s(rank),
            silent_s=self._idle(rank, idle),
            waits_for=cause_of(rank, self._rank, self._waits_for),
            starved_s=self._watch.starved_s(card.pid, idle) if near else 0.0,
            stack=lambda: stack_of(card.pid, stored_number(self._store.read(f"stack/{rank}", rank) or "-1")),
        )

    def _is_dead(self, rank: int) -> bool:
        return rank in self._near and self._watch.dead(self._cards[rank].pid)

    def _stopped_s(self, rank: int) -> float:
        return self._watch.stopped_s(self._cards[rank].pid) if rank in self._near else 0.0

    def _last_entry(self, rank: int) -> str:
        """What a member that has ended reported, if it did."""
        if rank == self._holder:
            return ""  # its store ended with it
        try:
            return self._store.read(f"end/{rank}", rank) or ""
        except RuntimeError:
            return ""

    def _idle(self, rank: int, entry: str) -> float:
        """How long a member has made no progress, as far as is known; negative while it is busy as announced."""
        now = time.monotonic()
        if rank not in self._seen or self._seen[rank][0] != entry:
            _, stated_s, waits_for = stored(entry, int, int | float, int) if entry else (0, 0.0, NO_RANK)
            self._seen[rank] = (entry, stated_s, waits_for, now)
        _, stated_s, _, first_seen = self._seen[rank]
        return stated_s + now - first_seen

    def _waits_for(self, rank: int) -> int | None:
        """The member that another one waits for; None if it does not wait."""
        self._idle(rank, *self._read("idle", ranks=[rank]))
        _, _, waits_for, first_seen = self._seen[rank]
        has_waited_lately = time.monotonic() - first_seen < SIGN_OF_WAIT_S
        return waits_for if waits_for != NO_RANK and has_waited_lately else None

    def hung_up(self, rank: int, label: str) -> GroupError:
        """The error for a member that closed its connection for an unknown reason."""
        if rank in self._near:  # it lives, so it has left this group alone
            return judge.left(rank, label)
        return judge.hung_up(rank, label, self._cards[rank].host)

    # The store itself may be gone, or stopped with its holder.

    def _without_store(self, label: str, error: RuntimeError) -> GroupError:
        """Name the member that took the store with it. Its connections break a little before its process has ended."""
        if self._store_is_stopped(label)[0] and self._holder is not None:
            return judge.stopped(self._holder, label, self._cards[self._holder].pid)
        deadline = time.monotonic() + BROKEN_FOR_S
        while time.monotonic() < deadline:
            dead = [rank for rank in self._near if self._is_dead(rank)]
            if dead:
                # The holder may have ended because of another.
                rank = next((rank for rank in dead if rank != self._holder), dead[0])
                return judge.died(self._facts(rank, label, 0.0, True, ""))
            time.sleep(0.02)
        why = str(error).splitlines()[0]
        culprit = self.culprit()
        if culprit not in (NO_RANK, self._holder, self._rank):
            # The holder may have ended because of another.
            return self.hung_up(culprit, label)
        if self._holder is None or self._holder in self._near:
            return judge.store_lost(label, why)
        return judge.store_lost(label, why, self._holder, self._cards[self._holder].host)

    def _store_is_stopped(self, label: str) -> tuple[bool, GroupError | None]:
        """Whether asking the store would block, and the error once that is certain."""
        if self._holder is None or self._holder not in self._near:
            return False, None
        pid = self._cards[self._holder].pid
        certain = self._judge.stopped_too_long(self._watch.stopped_s(pid))
        return self._watch.seen_stopped(pid), judge.stopped(self._holder, label, pid) if certain else None


def _last_words(end: str) -> LastWords:
    reason, rank, message = stored(end, str, int, str)
    return LastWords(reason, rank, printable(message))
