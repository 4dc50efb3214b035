"""Moves the work of all shared-memory groups of one worker, and waits: the only place that does.

There is no background thread. Work moves when the worker calls a group or waits for anything: then the work of *all*
its groups moves, so that workers which wait for different things still serve each other. (Contributions are posted in
the call itself, so small collectives never depend on when a peer waits.)

Waiting spins for a moment, then yields the processor (`sched_yield`), then sleeps: right with a core for each worker,
and right with more workers than cores.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

from shoal.comm.liveness.judge import Facts, Judge, cause_of, speaks, to_blame
from shoal.comm.liveness.limits import PAUSED_S, Patience
from shoal.comm.liveness.watch import ProcessWatch, at_exit, stack_of
from shoal.comm.shared_memory.arena import Board
from shoal.errors import GroupError, MemberError

NUM_SPINS, NUM_SPINS_CROWDED = 60, 8
"""How often a wait polls before it yields (about 0.2 µs each): with a core for each worker, and with fewer cores."""
YIELD_S = 0.0002
SLEEP_S = 50e-6
LOOK_AFTER_S = 0.002
LOOK_CLOSELY_EVERY_S = 0.1


class Channel(ABC):
    """Work that goes in order: the collectives of one group, the messages to or from one member."""

    any_will_do = False
    """Whether one of the missing members is enough."""
    all_meet = False
    """Whether all members wait for the missing ones, as in a collective."""
    roster: "Roster"
    """The members of the channel's group."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether the next step could be done without waiting: a quick look."""

    @abstractmethod
    def advance(self) -> bool:
        """Do what can be done without waiting; whether anything was."""

    @abstractmethod
    def missing(self) -> list[int]:
        """The members that the next step waits for, as ranks of the channel's group."""

    @abstractmethod
    def label(self) -> str:
        """What the next step belongs to, in words."""


@final
class Roster:
    """The members of one group: their boards, and their ranks in the world, which errors name."""

    def __init__(
        self,
        boards: Sequence[Board],
        world_ranks: Sequence[int],
        pids: Sequence[int],
        rank: int,
        homes: Sequence[Board],
    ) -> None:
        self.boards = list(boards)
        self.homes = list(homes)
        """The members' boards in the world group: progress in any group is noted there."""
        self.world_ranks = list(world_ranks)
        self.pids = list(pids)
        self.rank = rank
        self.may_die: set[int] = set()
        """Members without which this one can go on."""
        self.dead: set[int] = set()
        """Those of them that have been seen dead: messages from anyone come from the others."""

    def tolerates(self, error: GroupError) -> bool:
        """Whether this is the death of a member that may die; it counts as dead from now on."""
        if not isinstance(error, MemberError) or error.reason != "died":
            return False
        rank = self.world_ranks.index(error.rank)
        if rank in self.may_die:
            self.dead.add(rank)
        return rank in self.may_die


class Pending:
    """Work that a caller may wait for."""

    __slots__ = ("_patience", "_progress", "channel", "over")

    def __init__(self, progress: "ProgressEngine", channel: Channel) -> None:
        self._progress = progress
        self.channel = channel
        self._patience: Patience | None = None
        self.over = False

    def wait(self) -> None:
        """Return when the result is in place and the caller may overwrite its buffers."""
        if not self.over:
            self._progress.wait(self)

    def done(self) -> bool:
        """Whether `wait` would return at once. Asking moves the work forward."""
        if not self.over:
            self._progress.advance()
            if not self.over:
                self._patience = self._patience or Patience()
                waited_s = self._patience.to_look()
                if waited_s is not None:
                    self._progress.look(self.channel, waited_s)
        return self.over


@final
class ProgressEngine:
    """All channels of one worker."""

    def __init__(self, limit_s: float, num_workers: int) -> None:
        self._num_spins = NUM_SPINS if num_workers <= (os.cpu_count() or 1) else NUM_SPINS_CROWDED
        self.watch = ProcessWatch()
        self.rosters: list[Roster] = []
        self.error: GroupError | None = None
        self._judge = Judge(limit_s)
        self.channels: list[Channel] = []
        """Those with work under way."""
        self._cancel_exit = at_exit(self.fail)

    def add(self, channel: Channel) -> None:
        """Move this channel too."""
        self.channels.append(channel)

    def remove(self, channel: Channel) -> None:
        """Forget a channel."""
        if channel in self.channels:
            self.channels.remove(channel)

    def advance(self) -> bool:
        """Do what can be done without waiting, in every channel."""
        if self.error is not None:
            raise self.error
        moved = False
        try:
            # A copy: a channel that has nothing left to do removes itself.
            for channel in tuple(self.channels):
                moved |= channel.advance()
        except GroupError as error:
            self.fail(error)
            raise
        return moved

    def fail(self, error: BaseException | None) -> None:
        """Report to the members of all groups that this worker ends: with an error, or without one at its exit."""
        if self.error is None and isinstance(error, GroupError):
            self.error = error
        for roster in self.rosters:
            roster.boards[roster.rank].end(error, roster.world_ranks[roster.rank])

    def close(self) -> None:
        """The last group has been left."""
        self._cancel_exit()
        self.watch.close()

    def wait(self, work: Pending) -> None:
        """Move everything until this work is over, or a member that it needs is gone."""
        while not work.over:
            if not self.advance() and not self._spin(work.channel):
                self._wait_long(work)

    def _spin(self, channel: Channel) -> bool:
        """Look for a moment whether the channel can go on; only where no other has work."""
        if len(self.channels) > 1:
            return False
        ready = channel.ready
        return any(ready() for _ in range(self._num_spins))

    def _wait_long(self, work: Pending) -> None:
        """Yield and then sleep until anything moves; look for members that will not come."""
        started = previous = time.monotonic()
        next_look, next_close_look = started + LOOK_AFTER_S, started + LOOK_CLOSELY_EVERY_S
        self.watch.forget_stops()
        # `look` may have moved the work to its end; then nothing would move again.
        while not (work.over or self.advance()):
            now = time.monotonic()
            if now - previous > PAUSED_S:
                self.watch.forget_stops()
                started, next_look, next_close_look = now, now + LOOK_AFTER_S, now + LOOK_CLOSELY_EVERY_S
            previous = now
            if now - started < YIELD_S:
                os.sched_yield()
                continue
            time.sleep(SLEEP_S)
            if now >= next_look:
                closely = now >= next_close_look
                self.look(work.channel, now - started, closely)
                next_look = now + LOOK_AFTER_S
                if closely:
                    next_close_look = now + LOOK_CLOSELY_EVERY_S
        # Progress: until this member waits again, it does not count as waiting for the member that has come.
        roster = work.channel.roster
        roster.homes[roster.rank].keep_alive(time.monotonic_ns())

    def look(self, channel: Channel, waited_s: float, closely: bool = True) -> None:
        """Raise when this channel waits for a member that will not come."""
        error = self._find_error(channel, waited_s, closely)
        # A member that is found dead may have done its part just before: look at the channel once more first.
        if error is not None and not self.advance():
            if not (channel.any_will_do and channel.roster.tolerates(error)):
                self.fail(error)
            raise error

    def check_members(self, roster: Roster, label: str, waited_s: float) -> None:
        """Raise when a member of the roster will not come, for a wait outside of all channels."""
        self.advance()
        others = [rank for rank in range(len(roster.boards)) if rank != roster.rank]
        facts = [self._facts(roster, label, rank, waited_s, closely=True) for rank in others]
        error = self._judge.judge_idle(facts)
        if error is not None:
            self.fail(error)
            raise error
        if waited_s and others:
            self._note_wait(roster, others, facts)

    def _find_error(self, channel: Channel, waited_s: float, closely: bool) -> GroupError | None:
        roster, missing = channel.roster, channel.missing()
        facts = [self._facts(roster, channel.label(), rank, waited_s, closely) for rank in missing]
        if channel.any_will_do:
            error = self._judge.judge_any(facts)
        else:
            everyone = range(len(roster.boards))
            error = self._judge.judge_all(
                facts, not channel.all_meet or speaks(roster.rank, everyone, missing)
            )
        if error is None and missing:
            self._note_wait(roster, missing, facts)
        return error

    def _note_wait(self, roster: Roster, missing: Sequence[int], facts: Sequence[Facts]) -> None:
        """Report for whom this member waits. If one of them makes progress, this member is not stuck either."""
        home = roster.homes[roster.rank]
        home.keep_alive(max(roster.homes[rank].progress_ns() for rank in missing))
        home.note_wait(to_blame(facts).rank)

    def _waits_for(self, world_rank: int) -> int | None:
        homes = (
            roster.homes[roster.world_ranks.index(world_rank)]
            for roster in self.rosters
            if world_rank in roster.world_ranks
        )
        home = next(homes, None)
        return None if home is None else home.waits_for()

    def _facts(self, roster: Roster, label: str, rank: int, waited_s: float, closely: bool) -> Facts:
        home, pid = roster.homes[rank], roster.pids[rank]
        facts = Facts(
            roster.world_ranks[rank],
            label,
            waited_s,
            last_words=roster.boards[rank].last_words(),
            dead=self.watch.dead(pid),
            waits_for=cause_of(roster.world_ranks[rank], roster.world_ranks[roster.rank], self._waits_for),
            pid=pid,
        )
        if not closely or facts.dead or facts.last_words is not None:
            return facts
        progress_ns = home.progress_ns()
        return facts._replace(
            stopped_s=self.watch.stopped_s(pid),
            # A member that has not even begun has been silent since this one began to wait.
            silent_s=(time.monotonic_ns() - progress_ns) / 1e9 if progress_ns else waited_s,
            starved_s=self.watch.starved_s(pid, progress_ns),
            stack=lambda: stack_of(pid, home.stack_descriptor),
        )
