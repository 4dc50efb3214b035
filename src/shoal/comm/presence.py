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
from shoal.comm.group import SlowMemberWarning
from shoal.comm.rendezvous import Card
from shoal.comm.watch import Watch
from shoal.errors import GroupError, MemberError, MismatchError

WRITE_EVERY_S = 0.5
SLOW_AFTER_S = 2.0


@final
class Presence:
    """What one worker knows of the others, by their ranks in the world."""

    def __init__(self, store: Any, rank: int, cards: Sequence[Card], limit_s: float) -> None:
        self.rank, self.limit_s = rank, limit_s
        self._store, self._cards = store, list(cards)
        self._near = [
            card.rank for card in cards if card.rank != rank and card.shares_machine_with(cards[rank])
        ]
        self._watch = Watch()
        self._watch.add(cards[other].pid for other in self._near)
        self._progress = time.monotonic()
        self._written = 0.0
        self._seen: dict[int, tuple[str, float, float]] = {}
        """Per member: its last entry, the idle time it stated, and when we first saw that entry."""
        self._suspects: set[int] = set()
        self._warned: set[int] = set()
        self._count = 0
        self._ended = False
        store.set(f"stack/{rank}", str(stacks.listen()))
        store.set(f"end/{rank}", "")
        self._write_idle(0.0)

    def enter(self, group: str) -> None:
        """Begin with a new group: nobody waits in it yet."""
        self._store.set(f"at/{group}/{self.rank}", "0")

    def beat(self) -> None:
        """Note progress; tell it now and then."""
        self._progress = time.monotonic()
        if self._progress - self._written > WRITE_EVERY_S:
            self._write_idle(0.0)

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

    def close(self) -> None:
        """Let go of what watches the others."""
        self._watch.close()

    def look(
        self, group: str, ranks: Sequence[int], sequence: int, label: str, waited_s: float
    ) -> GroupError | None:
        """The error for a member that is waited for in vain; None when there is still hope.

        `sequence` is the collective we wait in, or 0 when it is a message from the only other of `ranks`.
        """
        others = [rank for rank in ranks if rank != self.rank]
        gone = self._gone(others, label)
        if gone is not None:
            return gone
        try:
            if sequence:
                self._store.set(f"at/{group}/{self.rank}", str(sequence))
            keys = [f"{kind}/{rank}" for rank in others for kind in ("end", "idle")]
            keys += [f"at/{group}/{rank}" for rank in others] if sequence else []
            values = [value.decode() for value in self._store.multi_get(keys)]
        except RuntimeError as error:
            return GroupError(
                f"{label}: the store where workers meet is gone: {str(error).splitlines()[0]}",
                "It lives with rank 0 or with the launcher: look at what happened there first.",
            )
        ends, idles = values[0 : 2 * len(others) : 2], values[1 : 2 * len(others) : 2]
        positions = [int(value) for value in values[2 * len(others) :]] if sequence else [-1] * len(others)
        missing = [index for index, position in enumerate(positions) if position < sequence]
        newest = float("inf")
        for index in missing:
            rank = others[index]
            if ends[index]:
                return _last_words(rank, label, *json.loads(ends[index]))
            idle_s = self._idle(rank, idles[index])
            newest = min(newest, idle_s)
            error = self._standstill(rank, label, idle_s, waited_s)
            if error is not None:
                return error
        # Whoever waits for a member that makes progress is not stuck either.
        self._write_idle(min(time.monotonic() - self._progress, newest))
        return None

    def _gone(self, others: Sequence[int], label: str) -> GroupError | None:
        """A neighbour that has died: on the second look, so that its last message can still arrive."""
        for rank in others:
            if rank in self._near and self._watch.dead(self._cards[rank].pid):
                if rank in self._suspects:
                    return self._last_will(rank) or MemberError(
                        f"rank {rank} died before {label} (process {self._cards[rank].pid} has ended)",
                        "Its own log, or the launcher, says what happened to it.",
                        rank=rank,
                        reason="died",
                    )
                self._suspects.add(rank)
        return None

    def _last_will(self, rank: int) -> GroupError | None:
        """What a member that has ended left behind, if it did."""
        try:
            text = self._store.get(f"end/{rank}").decode()
        except RuntimeError:
            return None
        reason, blamed, message = json.loads(text) if text else ("", 0, "")
        return _last_words(rank, "", reason, blamed, message) if reason not in ("", "left") else None

    def _idle(self, rank: int, entry: str) -> float:
        """How long a member has made no progress, as far as we can know."""
        now = time.monotonic()
        if rank not in self._seen or self._seen[rank][0] != entry:
            self._seen[rank] = (entry, json.loads(entry)[1], now)
        _, stated_s, first_seen = self._seen[rank]
        return stated_s + now - first_seen

    def _standstill(self, rank: int, label: str, idle_s: float, waited_s: float) -> MemberError | None:
        pid, near = self._cards[rank].pid, rank in self._near
        if near and self._watch.stopped(pid):
            return MemberError(
                f"rank {rank} has not reached {label}: it is stopped (SIGSTOP)",
                f"Continue it with: kill -CONT {pid}",
                rank=rank,
                reason="stopped",
            )
        if idle_s > self.limit_s:
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
        if waited_s > SLOW_AFTER_S and rank not in self._warned:
            self._warned.add(rank)
            warnings.warn(
                f"rank {rank} is slow: others have waited {waited_s:.1f} s for it at {label}",
                SlowMemberWarning,
                stacklevel=5,
            )
        return None


def _last_words(rank: int, label: str, reason: str, blamed: int, message: str) -> GroupError:
    if reason == "mismatch":
        return MismatchError(message)
    if reason == "left":
        return MemberError(f"rank {rank} left the group before {label}", rank=rank, reason="left")
    return MemberError(message, rank=blamed, reason=reason)
