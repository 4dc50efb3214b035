"""Where threads meet: each collective as one short function, and the waiting for those who have not come.

The n-th collective of a group is a `Meeting`. Everyone leaves its tensors there; whoever arrives last
carries the collective out for all, on the tensors themselves. So nothing moves twice and nothing can come
in the wrong order.
"""

import sys
import threading
import time
import traceback
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shoal.comm.calls import Call, message_mismatch, mismatch
from shoal.comm.group import SlowMemberWarning
from shoal.comm.reduction import Op, tree_reduce
from shoal.errors import MemberError

LOOK_EVERY_S = 0.05
SLOW_AFTER_S = 2.0


@dataclass(eq=False)
class Member:
    """One thread, the same in all its groups. Errors name it by `rank`, its rank in the world."""

    rank: int
    alive_ns: int = field(default_factory=time.monotonic_ns)
    """Its last progress; in the future while it is busy with what it has told the others of."""
    thread: int | None = None
    error: BaseException | None = None

    def beat(self, busy_s: float = 0.0) -> None:
        """Note that the thread makes progress, or will have made some in so many seconds."""
        self.alive_ns = time.monotonic_ns() + int(1e9 * busy_s)
        if self.thread is None:
            self.thread = threading.get_ident()


# The collectives. `wholes` and `pieces` hold one entry per rank; the call is the same on all of them.


def _all_reduce(call: Call, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    del wholes
    result = torch.empty(call.numel, dtype=call.dtype, device=pieces[0].device)
    tree_reduce(call.op or Op.SUM, [buffer.reshape(-1) for buffer in pieces], out=result)
    for buffer in pieces if call.root is None else [pieces[call.root]]:
        buffer.copy_(result.view(buffer.shape))


def _reduce_scatter(call: Call, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    rows = [whole.reshape(len(pieces), call.numel) for whole in wholes if whole is not None]
    for rank, piece in enumerate(pieces):
        result = torch.empty(call.numel, dtype=call.dtype, device=piece.device)
        tree_reduce(call.op or Op.SUM, [row[rank] for row in rows], out=result)
        piece.copy_(result.view(piece.shape))


def _all_gather(call: Call, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    result = torch.cat([piece.reshape(-1) for piece in pieces])
    for rank, whole in enumerate(wholes):
        if whole is not None and call.root in (None, rank):
            whole.copy_(result.view(whole.shape))


def _broadcast(call: Call, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    del wholes
    source = pieces[call.root or 0].reshape(-1)
    for rank, buffer in enumerate(pieces):
        if rank != call.root:
            buffer.copy_(source.view(buffer.shape))


def _scatter(call: Call, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    whole = wholes[call.root or 0]
    if whole is not None:
        for row, piece in zip(whole.reshape(len(pieces), call.numel), pieces, strict=True):
            piece.copy_(row.view(piece.shape))


def _nothing(call: Call, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    del call, wholes, pieces


CARRY_OUT: dict[str, Callable[[Call, list[Tensor | None], list[Tensor]], None]] = {
    "all_reduce": _all_reduce,
    "reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "gather": _all_gather,
    "broadcast": _broadcast,
    "scatter": _scatter,
    "barrier": _nothing,
    "empty": _nothing,
}
"""What the last to arrive does, for everyone."""


@dataclass
class Meeting:
    """The n-th collective of a group, or one message: who has come, with what, and whether it is over."""

    label: str
    needs: tuple[int, ...]
    calls: dict[int, Call] = field(default_factory=dict[int, Call])
    wholes: dict[int, Tensor | None] = field(default_factory=dict[int, Tensor | None])
    pieces: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    over: bool = False
    error: Exception | None = None

    def missing(self) -> list[int]:
        """Who has not come yet."""
        return [rank for rank in self.needs if rank not in self.calls]


class World:
    """What the members of one group share."""

    def __init__(self, members: Sequence[Member], limit_s: float) -> None:
        self.members = list(members)
        self.limit_s = limit_s
        self.changed = threading.Condition()
        self.meetings: dict[int, Meeting] = {}
        self.sent: dict[tuple[int, int], deque[tuple[Call, Tensor]]] = defaultdict(deque)
        self.asked: dict[tuple[int, int], deque[tuple[Meeting, Call, Tensor]]] = defaultdict(deque)
        self.children: dict[tuple[int, tuple[int, ...]], World] = {}
        self.left: set[int] = set()
        self.warned: set[int] = set()
        self.busy_until: dict[int, int] = {}
        """When a member was last seen busy with what it had told of: nobody is warned of that."""

    def arrive(self, sequence: int, rank: int, call: Call, whole: Tensor | None, piece: Tensor) -> Meeting:
        """Bring one member's tensors to a collective; the last to come carries it out."""
        with self.changed:
            label = f"{call.operation} #{sequence}"
            meeting = self.meetings.setdefault(sequence, Meeting(label, tuple(range(len(self.members)))))
            meeting.calls[rank] = call
            meeting.wholes[rank] = whole
            meeting.pieces[rank] = piece
            last = not meeting.missing()
            if last:
                del self.meetings[sequence]
        if last:
            everyone = range(len(self.members))
            try:
                if len(set(meeting.calls.values())) > 1:
                    names = {self.members[place].rank: call for place, call in meeting.calls.items()}
                    raise mismatch(sequence, names)
                CARRY_OUT[call.operation](
                    call, [meeting.wholes[i] for i in everyone], [meeting.pieces[i] for i in everyone]
                )
            except Exception as error:
                meeting.error = error
            self._end(meeting)
        return meeting

    def _end(self, meeting: Meeting) -> None:
        with self.changed:
            meeting.over = True
            self.changed.notify_all()

    def post(self, sender: int, receiver: int, call: Call, tensor: Tensor) -> None:
        """Leave a message, or hand it to a receiver that is already asking."""
        with self.changed:
            asked = self.asked[sender, receiver]
            if asked:
                meeting, expected, target = asked.popleft()
                self._deliver(meeting, sender, receiver, call, tensor, expected, target)
            else:
                self.sent[sender, receiver].append((call, tensor.clone()))

    def ask(self, sender: int, receiver: int, call: Call, tensor: Tensor) -> Meeting:
        """Take a message, or leave word where it is to go."""
        meeting = Meeting(f"send to rank {self.members[receiver].rank}", (sender,))
        with self.changed:
            sent = self.sent[sender, receiver]
            if sent:
                self._deliver(meeting, sender, receiver, *sent.popleft(), call, tensor)
            else:
                self.asked[sender, receiver].append((meeting, call, tensor))
        return meeting

    def _deliver(
        self,
        meeting: Meeting,
        sender: int,
        receiver: int,
        call: Call,
        source: Tensor,
        expected: Call,
        target: Tensor,
    ) -> None:
        if call != expected:
            names = self.members[sender].rank, self.members[receiver].rank
            meeting.error = message_mismatch(*names, call, expected)
        else:
            target.copy_(source.reshape(target.shape))
        meeting.over = True
        self.changed.notify_all()

    def leave(self, member: Member) -> None:
        """Note that a member is gone, from here and from the smaller groups."""
        with self.changed:
            self.left.add(self.members.index(member))
            self.changed.notify_all()
        for child in tuple(self.children.values()):
            if member in child.members:
                child.leave(member)

    def wait(self, meeting: Meeting, rank: int) -> None:
        """Wait until the meeting is over; raise when it failed, or when somebody will never come."""
        started = time.monotonic()
        with self.changed:
            while not meeting.over:
                # Short waits come first so that a quick collective is noticed at once, by its notification.
                self.changed.wait(LOOK_EVERY_S)
                if not meeting.over:
                    self._look(meeting, rank, time.monotonic() - started)
        self.members[rank].beat()
        if meeting.error is not None:
            raise meeting.error

    def look(self, meeting: Meeting, rank: int, waited_s: float) -> None:
        """Raise when somebody will never come to a meeting that is not over."""
        with self.changed:
            if not meeting.over:
                self._look(meeting, rank, waited_s)

    def _look(self, meeting: Meeting, rank: int, waited_s: float) -> None:
        """Raise when a missing member is gone or stuck; warn once when it is merely slow."""
        missing = meeting.missing()
        now = time.monotonic_ns()
        for place in missing:
            member = self.members[place]
            other = member.rank
            if isinstance(member.error, MemberError):
                raise MemberError(
                    member.error.message,
                    member.error.hint,
                    rank=member.error.rank,
                    reason=member.error.reason,
                )
            if member.error is not None:
                failure = f"{type(member.error).__name__}: {member.error}"
                raise MemberError(
                    f"rank {other} failed before {meeting.label}: {failure}", rank=other, reason="failed"
                )
            if place in self.left:
                raise MemberError(
                    f"rank {other} left the group before {meeting.label}", rank=other, reason="left"
                )
            # Only silence that somebody waited through counts: before, all may have been busy with long work.
            silent_s = min((now - member.alive_ns) / 1e9, waited_s)
            if silent_s > self.limit_s and not _in_debugger(member.thread):
                raise MemberError(
                    f"rank {other} has not reached {meeting.label}: it is alive, "
                    f"but has made no progress for {silent_s:.1f} s",
                    f"It is here:\n{_stack(member.thread)}",
                    rank=other,
                    reason="stuck",
                )
            if silent_s < 0:
                self.busy_until[other] = now
            kept_waiting_s = min(waited_s, (now - self.busy_until.get(other, 0)) / 1e9)
            if kept_waiting_s > SLOW_AFTER_S and other not in self.warned:
                self.warned.add(other)
                warnings.warn(
                    f"rank {other} is slow: others have waited {waited_s:.1f} s for it at {meeting.label}",
                    SlowMemberWarning,
                    stacklevel=4,
                )
        # Whoever waits for a member that makes progress is not stuck either.
        newest = max((self.members[place].alive_ns for place in missing), default=0)
        self.members[rank].alive_ns = max(self.members[rank].alive_ns, newest)


def _in_debugger(thread: int | None) -> bool:
    frame = sys._current_frames().get(thread or 0)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_trace is not None:
            return True
        frame = frame.f_back
    return False


def _stack(thread: int | None) -> str:
    frame = sys._current_frames().get(thread or 0)  # pyright: ignore[reportPrivateUsage]
    return "".join(traceback.format_stack(frame)) if frame else "    (its thread has ended or never began)"
