"""How checked groups move and wait: together, without a thread, and never without end.

First the headers of a collective are under way, then its data. A wait moves all groups of this worker, blocks in torch
for a moment at a time, and regularly looks for members that will not come.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar, final

from torch import Tensor

from shoal.comm.blocking import BlockingCall
from shoal.comm.liveness.judge import BROKEN_FOR_S
from shoal.comm.liveness.limits import LOOK_EVERY_S, PAUSED_S, Patience
from shoal.comm.over_torch.group import TorchGroup, TorchWork
from shoal.comm.over_torch.headers import NO_RANK, Header, Headers, HungUpError
from shoal.comm.over_torch.presence import Presence
from shoal.comm.signature import Signature, check_open, decode, encode, mismatch
from shoal.errors import GroupError, MemberError

GIVE_WAY_S = 0.001
BLOCK_S = 0.05
Look = Callable[[float, bool], GroupError | None]
"""Looks for members that will not come: (how long the wait has lasted, whether a connection has broken)."""

HEADERS_ONLY = ("barrier", "empty")
"""Operations without data: they are over when the headers agree."""
Made = TypeVar("Made")


@final
class CheckedCollective:
    """One collective: first its headers are under way, then its data."""

    def __init__(
        self, group: "Collectives", call: Signature, sequence: int, piece: Tensor, whole: Tensor | None
    ) -> None:
        self._group, self._patience = group, Patience()
        self.call, self.sequence = call, sequence
        self.piece, self.whole = piece, whole
        self.label = f"{call.operation} #{sequence}"
        """The collective in words, for errors."""
        self.data: TorchWork | None = None
        """None until all headers have come and agree."""
        self.over = False

    def wait(self) -> None:
        """Wait until it is over; raise when a member will not come."""
        if not self.over:
            self._group.wait(self)

    def done(self) -> bool:
        """Whether it is over. Asking moves it forward."""
        return self.over or self._group.ask(self, self._patience)


@final
class Collectives:
    """The collectives of one group: the data of each starts when the headers of all members agree.

    `name` is the group's, `ranks` are its members' ranks in the world, and `rank` is this member's place among them.
    """

    def __init__(
        self, checker: "Checker", headers: Headers, data: TorchGroup, name: str, ranks: Sequence[int]
    ) -> None:
        self._checker, self.headers, self._data = checker, headers, data
        self._name, self._ranks = name, ranks
        self.queue: deque[CheckedCollective] = deque()
        """Those under way, in order."""
        self._sequence = 0
        self.closed = False

    def check_usable(self, operation: str) -> None:
        """Refuse a call after a failure of this worker, or after it has left the group."""
        if self._checker.error is not None:
            raise self._checker.error
        check_open(operation, self.closed)

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None) -> CheckedCollective:
        """Send the header to all members; the data follows when all headers agree."""
        self._sequence += 1
        item = CheckedCollective(self, call, self._sequence, piece, whole)
        self.headers.publish(Header(encode(call), call.numel))
        self.queue.append(item)
        return item

    def advance(self) -> None:
        """Start the data of collectives whose headers agree, in order, and note which are over."""
        for item in tuple(self.queue):
            if item.data is None:
                try:
                    headers = self.headers.take()
                except HungUpError as error:
                    error.label = item.label
                    raise
                if headers is None:
                    return
                if any(header != headers[self._data.rank] for header in headers):
                    calls = [decode(*header) for header in headers]
                    raise mismatch(item.sequence, dict(zip(self._ranks, calls, strict=True)))
                launch = item.call.operation not in HEADERS_ONLY
                item.data = self._data.issue(item.call, item.piece, item.whole) if launch else TorchWork()
            if item.data.done():
                item.over = True
                self.queue.remove(item)

    def wait(self, item: CheckedCollective) -> None:
        """Wait for one collective."""
        self.check_usable(item.label)

        def block(seconds: float) -> None:
            first = next((each for each in self.queue if not each.over), item)
            (self.headers if first.data is None else first.data).wait_for(seconds)

        self._checker.wait(lambda: item.over, block, self._look_for(item))

    def ask(self, item: CheckedCollective, patience: Patience) -> bool:
        """Whether one collective is over."""
        self.check_usable(item.label)
        return self._checker.ask(lambda: item.over, self._look_for(item), patience)

    def _look_for(self, item: CheckedCollective) -> Look:
        def look(waited_s: float, broken: bool) -> GroupError | None:
            first = self.queue[0] if self.queue else item
            return self._checker.presence.look(
                self._name, self._ranks, first.sequence, first.label, waited_s, broken
            )

        return look


@final
class Checker:
    """What all checked groups of one worker share: they move together and fail together."""

    def __init__(self, presence: Presence) -> None:
        self.presence = presence
        presence.culprit = self._culprit
        self.groups: list[Collectives] = []
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
                group.headers.blame(error.rank)
        self.presence.signs.end(error)

    def _culprit(self) -> int:
        """The member whose end was the first, as far as connections that have ended show; or NO_RANK."""
        gone = dict[int, int]()
        for group in self.groups:
            gone |= group.headers.hung_up()
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
        missed = error if isinstance(error, HungUpError) else None
        if rank == NO_RANK and missed is not None:
            rank = missed.rank
        if rank != NO_RANK:
            waiting = [group.queue[0].label for group in self.groups if group.queue]
            label = missed.label if missed is not None else next(iter(waiting), "a message")
            return self.presence.hung_up(rank, label)
        return GroupError(f"a connection of the group broke: {str(error).splitlines()[0]}")
