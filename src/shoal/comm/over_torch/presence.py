"""What has become of members who share no memory with us: read from their signs of life in a store (`signs.py`).

Only who has been waiting for a while looks. For members on this machine the operating system is asked as well
(`watch.py`): it knows of deaths and stops at once.
"""

import json
import time
import warnings
from collections.abc import Sequence
from typing import Any, final

from shoal.comm import stacks
from shoal.comm.group import SlowMemberWarning
from shoal.comm.over_torch.signs import Signs
from shoal.comm.rendezvous import Card
from shoal.comm.store import Distant
from shoal.comm.watch import Watch
from shoal.errors import GroupError, MemberError, MismatchError

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

SURE_OF_LOSS_S = 1.0
"""How long we look for whoever took the store away."""


@final
class Presence:
    """What one worker knows of the others, by their ranks in the world.

    `holder` is the rank in whose process the store lives; None where a launcher has it.
    """

    def __init__(
        self, store: Any, rank: int, cards: Sequence[Card], limit_s: float, holder: int | None = None
    ) -> None:
        self._rank, self._limit_s = rank, limit_s
        self._cards, self._holder = list(cards), holder
        self._near = [
            card.rank for card in cards if card.rank != rank and card.shares_machine_with(cards[rank])
        ]
        all_are_near = len(self._near) == len(cards) - 1
        self._store: Any = store if all_are_near or rank == holder else Distant(store, limit_s)
        self._watch = Watch()
        self._watch.add(cards[other].pid for other in self._near)
        self._seen: dict[int, tuple[str, float, float]] = {}
        """Per member: its last entry, the idle time it stated, and when we first saw that entry."""
        self._gone_since: dict[int, float] = {}
        self._warned: set[int] = set()
        self._busy_until: dict[int, float] = {}
        """When a member was last seen busy with what it had told of: nobody is warned of that."""
        keeps_for = {card.rank for card in cards} - {rank} if rank == holder else set[int]()
        self.signs = Signs(self._store, rank, limit_s, keeps_for, self._is_out)

    def close(self) -> None:
        """Say good-bye, and let go of what watches the others."""
        self.signs.end(None)
        if self._rank != self._holder:  # who has the store keeps it until its process ends
            self.signs.forget_exit()
            self._watch.close()
            if isinstance(self._store, Distant):
                self._store.close()

    def _is_out(self, rank: int) -> bool:
        """Whether a neighbour is dead or stopped."""
        pid = self._cards[rank].pid
        return rank in self._near and (self._watch.dead(pid) or self._watch.stopped(pid))

    def _read(self, *kinds: str, ranks: Sequence[int]) -> list[bytes]:
        return self._store.multi_get([f"{kind}/{rank}" for rank in ranks for kind in kinds]) if ranks else []

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
        others = [rank for rank in ranks if rank != self._rank]
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
            if not missing and sequence != ENTERING:
                return self._arrived(others, label, waited_s)
            entries = [value.decode() for value in self._read("end", "idle", ranks=missing)]
            return self._judge(missing, entries, label, waited_s, broken)
        except RuntimeError as error:
            return self._without_store(label, error)

    def _missing(self, group: str, others: Sequence[int], sequence: int) -> list[int]:
        """Who has not come to where we wait."""
        if sequence == MESSAGE:
            return list(others)
        if sequence == ENTERING:
            known = [rank for rank in others if self._store.check([f"end/{rank}", f"idle/{rank}"])]
            failed = [end != b"" and json.loads(end)[0] != "left" for end in self._read("end", ranks=known)]
            # Who has entered and left again may have connected; who has failed has not.
            return [
                rank
                for rank, has_failed in zip(known, failed, strict=True)
                if has_failed or not self._store.check([f"at/{group}/{rank}"])
            ]
        self.signs.wait_in(group, sequence)
        positions = [int(value) for value in self._read(f"at/{group}", ranks=others)]
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
        self.signs.wait_for(newest)
        return None

    def _arrived(self, others: Sequence[int], label: str, waited_s: float) -> GroupError | None:
        """All are here, and data moves for as long as it takes; but each looks around meanwhile, and says so."""
        self.signs.wait_for(float("inf"))
        for rank, entry in zip(others, self._read("idle", ranks=others), strict=True):
            self._idle(rank, entry.decode())
            silent_s = time.monotonic() - self._seen[rank][2]
            error = self._silence(rank, label, silent_s, waited_s)
            if error is not None:
                return error
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

    def hung_up(self, rank: int, label: str) -> MemberError:
        """The error for a member that closed its connection, and nobody knows why."""
        if rank in self._near:  # it lives, so it has left this group alone
            return _left(rank, label)
        host = self._cards[rank].host
        return MemberError(
            f"rank {rank} on {host} hung up before {label}",
            f"It died or left, or the network to {host} is down: its own log may say more.",
            rank=rank,
            reason="died",
        )

    # The store itself may be gone, or stopped with its holder.

    def _without_store(self, label: str, error: RuntimeError) -> GroupError:
        """Say who took the store away. Its connections break a little before its process counts as dead."""
        deadline = time.monotonic() + SURE_OF_LOSS_S
        while time.monotonic() < deadline:
            dead = [rank for rank in self._near if self._watch.dead(self._cards[rank].pid)]
            if dead:
                # The holder may have ended because of another.
                return self._died(next((rank for rank in dead if rank != self._holder), dead[0]), label)
            time.sleep(0.02)
        if self._holder is not None and self._holder not in self._near:
            card = self._cards[self._holder]
            return MemberError(
                f"rank {card.rank} on {card.host} is gone before {label}, and with it the store where workers meet"
                f" ({_first_line(error)})",
                f"Its own log says what happened to it; or the network to {card.host} is down.",
                rank=card.rank,
                reason="died",
            )
        return GroupError(
            f"{label}: the store where workers meet is gone: {_first_line(error)}",
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

    def _silence(self, rank: int, label: str, idle_s: float, waited_s: float) -> MemberError | None:
        """The error of a member that is stopped, or has been idle for too long while we waited."""
        pid, near = self._cards[rank].pid, rank in self._near
        if near and self._watch.stopped(pid):
            return self._stopped(rank, label)
        # A process with a small share of a processor is slow, not stuck.
        starved_s = self._watch.starved_s(pid, self._seen[rank][0]) if near else 0.0
        if min(idle_s - starved_s, waited_s) > self._limit_s:
            return self._stuck(rank, label, idle_s)
        return None

    def _stuck(self, rank: int, label: str, idle_s: float) -> MemberError:
        if rank in self._near:
            stack = stacks.ask(self._cards[rank].pid, int(self._store.get(f"stack/{rank}")))
            what = f"has not reached {label}: it is alive, but has made no progress for {idle_s:.1f} s"
            return MemberError(f"rank {rank} {what}", f"It is here:\n{stack}", rank=rank, reason="stuck")
        return MemberError(
            f"rank {rank} on {self._cards[rank].host} has not reached {label}: silent for {idle_s:.1f} s",
            f"It is stuck or stopped, or the network to {self._cards[rank].host} is down.",
            rank=rank,
            reason="stuck",
        )

    def _standstill(self, rank: int, label: str, idle_s: float, waited_s: float) -> MemberError | None:
        error = self._silence(rank, label, idle_s, waited_s)
        if error is not None:
            return error
        now = time.monotonic()
        if idle_s < 0:
            self._busy_until[rank] = now
        if min(waited_s, now - self._busy_until.get(rank, 0.0)) > SLOW_AFTER_S and rank not in self._warned:
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
        return _left(rank, label)
    return MemberError(message, rank=blamed, reason=reason)


def _left(rank: int, label: str) -> MemberError:
    return MemberError(f"rank {rank} left the group before {label}", rank=rank, reason="left")


def _first_line(error: RuntimeError) -> str:
    return str(error).splitlines()[0]
