"""How checked groups move and wait: together, without a thread, and never without end.

First the headers of a collective are under way, then its data. A wait moves all groups of this worker, blocks in torch
for a moment at a time, and regularly looks for members that will not come.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TypeVar, final

from torch import Tensor

from shoal.comm.blocking import BlockingCall
from shoal.comm.liveness.judge import BROKEN_FOR_S
from shoal.comm.liveness.limits import LOOK_EVERY_S, PAUSED_S, Patience
from shoal.comm.over_torch.group import TorchWork
from shoal.comm.over_torch.headers import NO_RANK
from shoal.comm.over_torch.presence import Presence
from shoal.comm.signature import Signature
from shoal.errors import GroupError, MemberError

GIVE_WAY_S = 0.001
BLOCK_S = 0.05
Look = Callable[[float, bool], GroupError | None]
"""Looks for members that will not come: (how long the wait has lasted, whether a connection has broken)."""

Made = TypeVar("Made")


@final
class MissedError(RuntimeError):
    """A member closed its connection before it published the header of a collective."""

    def __init__(self, rank: int, label: str) -> None:
        super().__init__(f"rank {rank} hung up before {label}")
        self.rank, self.label = rank, label


@final
class CheckedCollective:
    """One collective: first its headers are under way, then its data."""

    def __init__(self, call: Signature, sequence: int, piece: Tensor, whole: Tensor | None) -> None:
        self.call, self.sequence = call, sequence
        self.piece, self.whole = piece, whole
        self.data: TorchWork | None = None
        """None until all headers have come and agree."""
        self.over = False

    def label(self) -> str:
        """The collective in words, for errors."""
        return f"{self.call.operation} #{self.sequence}"


class Mover(Protocol):
    """A group whose collectives can be moved forward."""

    @property
    def queue(self) -> deque[CheckedCollective]:
        """The collectives that are under way, in order."""
        ...

    def advance(self) -> None:
        """Start and finish what can be started and finished."""
        ...

    def blame(self, rank: int) -> None:
        """Tell the other members which one is the cause of this one's end."""
        ...

    def hung_up(self) -> dict[int, int]:
        """The members whose connections have ended, each with the member that it blamed."""
        ...


@final
class Checker:
    """What all checked groups of one worker share: they move together and fail together."""

    def __init__(self, presence: Presence) -> None:
        self.presence = presence
        presence.culprit = self._culprit
        self.groups: list[Mover] = []
        self.error: GroupError | None = None

    def advance(self) -> None:
        """Start and finish what can be started and finished, in every group."""
        if self.error is not None:
            raise self.error
        for group in tuple(self.groups):
            group.advance()

    def num_pending(self) -> int:
        """How many groups have collectives under way."""
        return sum(1 for group in self.groups if group.queue)

    def fail(self, error: BaseException) -> None:
        """Report to all members that this worker ends with an error."""
        if self.error is None and isinstance(error, GroupError):
            self.error = error
        if isinstance(error, MemberError):
            for group in self.groups:
                group.blame(error.rank)
        self.presence.signs.end(error)

    def _culprit(self) -> int:
        """The member whose end was the first, as far as connections that have ended show; or NO_RANK."""
        gone = dict[int, int]()
        for group in self.groups:
            gone |= group.hung_up()
        blamed = [rank for rank in gone.values() if rank != NO_RANK]
        silent = [rank for rank, blames in gone.items() if blames == NO_RANK]
        return next(iter(blamed or silent), NO_RANK)

    def wait(self, over: Callable[[], bool], block: Callable[[float], None], look: Look) -> None:
        """Wait until `over`: move everything, block for a moment, look for missing members regularly."""
        started = previous = time.monotonic()
        next_look = started + LOOK_EVERY_S
        with self.naming(look):
            while True:
                self.advance()
                if over():
                    self.presence.signs.beat()
                    return
                # Block only where no other group has work to move.
                block(BLOCK_S if self.num_pending() <= 1 else GIVE_WAY_S)
                now = time.monotonic()
                if now - previous > PAUSED_S:
                    started = now
                    self.presence.forget()
                if now >= next_look and not over():
                    self._look(over, look, now - started)
                    next_look = now + LOOK_EVERY_S
                previous = time.monotonic()

    def ask(self, over: Callable[[], bool], look: Look, patience: Patience) -> bool:
        """Whether it is over: move everything, look for missing members regularly, do not wait."""
        with self.naming(look):
            self.advance()
            if not over():
                waited_s = patience.to_look()
                if waited_s is not None:
                    self._look(over, look, waited_s)
            return over()

    def _look(self, over: Callable[[], bool], look: Look, waited_s: float) -> None:
        error = look(waited_s, False)
        if error is not None:
            # The member may have come just now, or done its part before it went.
            self.advance()
            if not over():
                raise error

    @contextmanager
    def naming(self, look: Look) -> Generator[None]:
        """Report errors to the other members; where torch reports a broken connection, find the member that is gone."""
        try:
            yield
        except GroupError as error:
            self.fail(error)
            raise
        except RuntimeError as error:
            named = self._name(look, error)
            self.fail(named)
            raise named from error

    def make(self, work: Callable[[], Made], look: Look) -> Made:
        """What `work` returns. It blocks in torch until the others call it too, so it runs on a thread."""
        made: list[Made] = []
        job = BlockingCall(lambda: made.append(work()))
        threading.Thread(target=job.run, name="shoal connects", daemon=True).start()

        def block(seconds: float) -> None:
            job.finished.wait(seconds)

        self.wait(job.over, block, look)
        return made[0]

    def _name(self, look: Look, error: RuntimeError) -> GroupError:
        """Find the member that broke a connection."""
        deadline = time.monotonic() + BROKEN_FOR_S
        while time.monotonic() < deadline:
            found = look(0.0, True)
            if found is not None:
                return found
            time.sleep(LOOK_EVERY_S / 2)
        rank = self._culprit()
        if rank == NO_RANK and isinstance(error, MissedError):
            rank = error.rank
        if rank != NO_RANK:
            waiting = [group.queue[0].label() for group in self.groups if group.queue]
            label = error.label if isinstance(error, MissedError) else next(iter(waiting), "a message")
            return self.presence.hung_up(rank, label)
        return GroupError(f"a connection of the group broke: {str(error).splitlines()[0]}")
