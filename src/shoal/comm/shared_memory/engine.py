"""Moves the work of all shared-memory groups of one worker, and waits: the only place that does.

No thread works in the background. Work moves when the worker calls a group or waits for anything: then
*all* its groups' work moves, so that workers which wait for different things still serve each other.
(Contributions are posted at the call itself, so small collectives never depend on when a peer waits.)

Waiting is a short spin, then giving way to others (`sched_yield`), then sleep: right with a core for each
worker, and right with more workers than cores.
"""

import os
import time
import warnings
from collections.abc import Sequence
from typing import Protocol, final

from shoal.comm import stacks
from shoal.comm.goodbye import at_exit
from shoal.comm.group import SlowMemberWarning
from shoal.comm.patience import PAUSED_S, Patience
from shoal.comm.shared_memory.board import FAILED, LEFT, Board
from shoal.comm.watch import Watch
from shoal.errors import GroupError, MemberError

NUM_SPINS = 5
YIELD_S = 0.0002
SLEEP_S = 50e-6
LOOK_AFTER_S = 0.002
LOOK_CLOSELY_EVERY_S = 0.1
SLOW_AFTER_S = 2.0


class Lane(Protocol):
    """Work that goes in order: the collectives of one group, the messages to or from one member."""

    def advance(self) -> bool:
        """Do what can be done without waiting; whether anything was."""
        ...

    def missing(self) -> list[int]:
        """Whom the next step waits for, as ranks of the lane's group."""
        ...

    def label(self) -> str:
        """What the next step belongs to, in words."""
        ...

    @property
    def roster(self) -> "Roster":
        """The members of the lane's group."""
        ...


@final
class Roster:
    """The members of one group: their boards, and their ranks in the world, by which errors name them."""

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
        """Everyone's board in the world: a member's signs of life are there, whatever group it is busy in."""
        self.world_ranks = list(world_ranks)
        self.pids = list(pids)
        self.rank = rank


@final
class Pending:
    """A piece of work that somebody may wait for."""

    __slots__ = ("_engine", "_lane", "_patience", "over")

    def __init__(self, engine: "Engine", lane: Lane) -> None:
        self._engine = engine
        self._lane = lane
        self._patience: Patience | None = None
        self.over = False

    def wait(self) -> None:
        """Return when the result is there and the caller may overwrite its buffers."""
        if not self.over:
            self._engine.wait(self, self._lane)

    def done(self) -> bool:
        """Whether `wait` would return at once. Asking moves the work forward."""
        if not self.over:
            self._engine.advance()
            if not self.over:
                self._patience = self._patience or Patience()
                waited_s = self._patience.to_look()
                if waited_s is not None:
                    self._engine.look(self._lane, waited_s)
        return self.over


@final
class Engine:
    """All lanes of one worker."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.watch = Watch()
        self.rosters: list[Roster] = []
        self.error: GroupError | None = None
        self._lanes: list[Lane] = []
        self._warned: set[int] = set()
        self._busy_until: dict[int, float] = {}
        """When a member was last seen busy with what it had told of: nobody is warned of that."""
        self._forget_exit = at_exit(self._leave)

    def add(self, lane: Lane) -> None:
        """Move this lane too."""
        self._lanes.append(lane)

    def remove(self, lane: Lane) -> None:
        """Forget a lane."""
        if lane in self._lanes:
            self._lanes.remove(lane)

    def advance(self) -> bool:
        """Do what can be done without waiting, in every lane."""
        if self.error is not None:
            raise self.error
        moved = False
        try:
            lanes = self._lanes
            if len(lanes) == 1:
                return lanes[0].advance()
            # A copy: a lane that has nothing left to do takes itself off the list.
            for lane in tuple(lanes):
                moved |= lane.advance()
        except GroupError as error:
            self.fail(error)
            raise
        return moved

    def fail(self, error: BaseException) -> None:
        """Tell the members of all groups that this worker ends with an error."""
        if self.error is None and isinstance(error, GroupError):
            self.error = error
        for roster in self.rosters:
            roster.boards[roster.rank].fail(error, roster.world_ranks[roster.rank])

    def _leave(self, error: BaseException | None) -> None:
        """Our process ends."""
        if error is not None:
            self.fail(error)
        for roster in self.rosters:
            roster.boards[roster.rank].leave()

    def close(self) -> None:
        """The last group has been left."""
        self._forget_exit()
        self.watch.close()

    def wait(self, work: Pending, lane: Lane) -> None:
        """Move everything until this work is over, or somebody it needs is gone."""
        spins = 0
        started = next_look = next_close_look = previous = 0.0
        while not work.over:
            if self.advance():
                spins = 0
                continue
            spins += 1
            if spins <= NUM_SPINS:
                continue
            now = time.monotonic()
            if spins == NUM_SPINS + 1 or now - previous > PAUSED_S:
                self.watch.forget_stops()
                started, next_look, next_close_look = now, now + LOOK_AFTER_S, now + LOOK_CLOSELY_EVERY_S
            previous = now
            if now - started < YIELD_S:
                os.sched_yield()
                continue
            time.sleep(SLEEP_S)
            if now >= next_look:
                closely = now >= next_close_look
                self.look(lane, now - started, closely)
                next_look = now + LOOK_AFTER_S
                if closely:
                    next_close_look = now + LOOK_CLOSELY_EVERY_S

    def look(self, lane: Lane, waited_s: float, closely: bool = True) -> None:
        """Raise when this lane waits for somebody in vain."""
        error = self._trouble(lane, waited_s, closely)
        # Whoever is found dead may have done its part just before: look at the lane once more first.
        if error is not None and not self.advance():
            self.fail(error)
            raise error

    def _trouble(self, lane: Lane, waited_s: float, closely: bool) -> GroupError | None:
        """The error for a member this lane waits for in vain, if there is one."""
        roster = lane.roster
        newest = 0
        for rank in lane.missing():
            board, name, pid = roster.boards[rank], roster.world_ranks[rank], roster.pids[rank]
            if board.state == FAILED:
                return board.last_words()
            if board.state == LEFT:
                return MemberError(
                    f"rank {name} left the group before {lane.label()}", rank=name, reason="left"
                )
            if self.watch.dead(pid):
                return MemberError(
                    f"rank {name} died before {lane.label()} (process {pid} has ended)",
                    "Its own log, or the launcher, says what happened to it.",
                    rank=name,
                    reason="died",
                )
            if closely:
                error = self._standstill(lane, roster.homes[rank], name, pid, waited_s)
                if error is not None:
                    return error
            newest = max(newest, roster.homes[rank].last_progress_ns())
        # Whoever waits for a member that makes progress is not stuck either.
        roster.homes[roster.rank].keep_alive(newest)
        return None

    def _standstill(
        self, lane: Lane, board: Board, name: int, pid: int, waited_s: float
    ) -> MemberError | None:
        """The error for a member that lives but does not move; a warning for one that moves slowly."""
        if self.watch.stopped(pid):
            return MemberError(
                f"rank {name} has not reached {lane.label()}: it is stopped (SIGSTOP)",
                f"Continue it with: kill -CONT {pid}",
                rank=name,
                reason="stopped",
            )
        # Who has not even begun has been silent since we began to wait.
        progress_ns = board.last_progress_ns()
        silent_s = (time.monotonic_ns() - progress_ns) / 1e9 if progress_ns else waited_s
        # Only silence that somebody waited through counts: before, all may have been busy with long work. And of
        # that only what the member was free to use: a process with a small share of a processor is slow, not stuck.
        silent_s = min(silent_s, waited_s)
        starved_s = self.watch.starved_s(pid, progress_ns)
        if silent_s - starved_s > self.limit_s:
            return MemberError(
                f"rank {name} has not reached {lane.label()}: it is alive, "
                f"but has made no progress for {silent_s:.1f} s",
                f"It is here:\n{stacks.ask(pid, board.stack_descriptor)}",
                rank=name,
                reason="stuck",
            )
        now = time.monotonic()
        if silent_s < 0:
            self._busy_until[name] = now
        if min(waited_s, now - self._busy_until.get(name, 0.0)) > SLOW_AFTER_S and name not in self._warned:
            self._warned.add(name)
            warnings.warn(
                f"rank {name} is slow: others have waited {waited_s:.1f} s for it at {lane.label()}",
                SlowMemberWarning,
                stacklevel=5,
            )
        return None
