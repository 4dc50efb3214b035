"""Where threads meet: each collective as one short function, messages, and waiting for members that are missing.

The n-th collective of a group is a `Meeting`. Every member leaves its tensors there, and the last to arrive carries the
collective out for all, on the tensors themselves: nothing moves twice, and nothing can come in the wrong order.
"""

import gc
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.comm.group import ANYONE
from shoal.comm.liveness.judge import Facts, Judge, LastWords, cause_of, still_waits, to_blame
from shoal.comm.reduction import Op, tree_reduce
from shoal.comm.signature import Signature, message_mismatch, mismatch

LOOK_EVERY_S = 0.05


def frames_of(thread: int | None) -> list[FrameType]:
    """The frames of a thread, the innermost first; none if it has ended.

    Garbage is not collected meanwhile. In Python 3.11 a collection may begin while an object is made for a frame, and
    let the thread leave that frame: then the object points to memory that is used otherwise, and the process crashes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread or 0)  # pyright: ignore[reportPrivateUsage]
        frames: list[FrameType] = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        return frames
    finally:
        if was_enabled:
            gc.enable()


@dataclass(eq=False)
class ThreadMember:
    """One thread, the same in all its groups. Errors name it by `rank`, its rank in the world."""

    rank: int
    alive_ns: int = field(default_factory=time.monotonic_ns)
    """The time of its last progress; in the future while it is busy with work that it announced."""
    thread: int | None = None
    last_words: LastWords | None = None
    _wait: "tuple[ThreadMember | None, int]" = (None, 0)
    """The member that it waited for when it last looked, and when that was."""

    def wait_for(self, facts: Sequence[Facts], members: "Sequence[ThreadMember]") -> None:
        """Note for which of the members it waits. If one of them makes progress, it is not stuck either."""
        if members:
            self.alive_ns = max(self.alive_ns, *(each.alive_ns for each in members))
            self._wait = members[facts.index(to_blame(facts))], time.monotonic_ns()

    def waits_for(self) -> "ThreadMember | None":
        """The member that it waits for; None if it does not wait."""
        member, reported_ns = self._wait
        return member if still_waits(reported_ns, self.alive_ns) else None

    def called(self) -> None:
        """Note that what it waited for has come: it waits no longer, although its thread may not have run yet."""
        self._wait = None, 0

    def beat(self, busy_s: float = 0.0) -> None:
        """Note that the thread makes progress, or will have made some after `busy_s`."""
        self.alive_ns = time.monotonic_ns() + int(1e9 * busy_s)
        if self.thread is None:
            self.thread = threading.get_ident()


# The collectives. `wholes` and `pieces` hold one entry per rank; the call is the same on all of them.


def _all_reduce(call: Signature, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    result = torch.empty(call.numel, dtype=call.dtype, device=pieces[0].device)
    tree_reduce(call.op or Op.SUM, [buffer.reshape(-1) for buffer in pieces], out=result)
    for buffer in pieces if call.root is None else [pieces[call.root]]:
        buffer.copy_(result.view(buffer.shape))


def _reduce_scatter(call: Signature, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    rows = [whole.reshape(len(pieces), call.numel) for whole in wholes if whole is not None]
    for rank, piece in enumerate(pieces):
        result = torch.empty(call.numel, dtype=call.dtype, device=piece.device)
        tree_reduce(call.op or Op.SUM, [row[rank] for row in rows], out=result)
        piece.copy_(result.view(piece.shape))


def _all_gather(call: Signature, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    result = torch.cat([piece.reshape(-1) for piece in pieces])
    for rank, whole in enumerate(wholes):
        if whole is not None and call.root in (None, rank):
            whole.copy_(result.view(whole.shape))


def _all_to_all(call: Signature, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    rows = [whole.reshape(len(pieces), call.numel) for whole in wholes if whole is not None]
    for rank, out in enumerate(pieces):
        out.copy_(torch.cat([row[rank] for row in rows]).view(out.shape))


def _broadcast(call: Signature, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    source = pieces[call.root or 0].reshape(-1)
    for rank, buffer in enumerate(pieces):
        if rank != call.root:
            buffer.copy_(source.view(buffer.shape))


def _scatter(call: Signature, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    whole = wholes[call.root or 0]
    if whole is not None:
        for row, piece in zip(whole.reshape(len(pieces), call.numel), pieces, strict=True):
            piece.copy_(row.view(piece.shape))


def _nothing(call: Signature, wholes: list[Tensor | None], pieces: list[Tensor]) -> None:
    del call, wholes, pieces


CARRY_OUT: dict[str, Callable[[Signature, list[Tensor | None], list[Tensor]], None]] = {
    "all_reduce": _all_reduce,
    "reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "gather": _all_gather,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "scatter": _scatter,
    "barrier": _nothing,
    "empty": _nothing,
}
"""What the last member to arrive does, for all."""


@dataclass
class Meeting:
    """The n-th collective of a group, or one message: which members have come, with what, and whether it is over."""

    label: str
    needs: tuple[int, ...]
    any_will_do: bool = False
    """Whether one of `needs` is enough: a message from anyone."""
    calls: dict[int, Signature] = field(default_factory=dict[int, Signature])
    wholes: dict[int, Tensor | None] = field(default_factory=dict[int, Tensor | None])
    pieces: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    source: int = ANYONE
    over: bool = False
    error: Exception | None = None

    def missing(self) -> list[int]:
        """The members that have not come yet."""
        return [rank for rank in self.needs if rank not in self.calls]


class _Sent(NamedTuple):
    """A message that no member has asked for yet."""

    sender: int
    call: Signature
    tensor: Tensor


class _Asked(NamedTuple):
    """A `recv` whose message has not come yet; `sender` may be ANYONE."""

    sender: int
    call: Signature
    tensor: Tensor
    meeting: Meeting


class World:
    """What the members of one group share."""

    def __init__(self, members: Sequence[ThreadMember], judge: Judge) -> None:
        self.members = list(members)
        self.judge = judge
        self.changed = threading.Condition()
        self.meetings: dict[int, Meeting] = {}
        self.sent: dict[int, list[_Sent]] = defaultdict(list)
        self.asked: dict[int, list[_Asked]] = defaultdict(list)
        """Both by the receiver's rank, in the order in which they came."""
        self.children: dict[tuple[int, tuple[int, ...]], World] = {}
        self.shown: dict[int, dict[int, Tensor]] = {}
        """Tensors that members show each other, by the number of the call and the rank."""
        self.left: set[int] = set()

    def arrive(
        self, sequence: int, rank: int, call: Signature, whole: Tensor | None, piece: Tensor
    ) -> Meeting:
        """Bring one member's tensors to a collective; the last to come carries it out."""
        with self.changed:
            label = f"{call.operation} #{sequence}"
            meeting = self.meetings.setdefault(sequence, Meeting(label, tuple(range(len(self.members)))))
            meeting.calls[rank] = call
            meeting.wholes[rank] = whole
            meeting.pieces[rank] = piece
            last = len(meeting.calls) == len(self.members)
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
            with self.changed:
                meeting.over = True
                for member in self.members:
                    member.called()
                self.changed.notify_all()
        return meeting

    def post(self, sender: int, receiver: int, call: Signature, tensor: Tensor) -> None:
        """Hand a message to the `recv` that waits for it, or keep a copy."""
        with self.changed:
            asked = self.asked[receiver]
            for wanted in (sender, ANYONE):
                for ask in asked:
                    if ask.sender == wanted:
                        asked.remove(ask)
                        self._deliver(receiver, _Sent(sender, call, tensor), ask)
                        return
            self.sent[receiver].append(_Sent(sender, call, tensor.clone()))

    def ask(self, sender: int, receiver: int, call: Signature, tensor: Tensor) -> Meeting:
        """Take a message that has come, or note where it is to go."""
        needs = tuple(other for other in range(len(self.members)) if sender in (other, ANYONE))
        label = f"send to rank {self.members[receiver].rank}"
        ask = _Asked(sender, call, tensor, Meeting(label, needs, any_will_do=sender == ANYONE))
        with self.changed:
            for message in self.sent[receiver]:
                if sender in (message.sender, ANYONE):
                    self.sent[receiver].remove(message)
                    self._deliver(receiver, message, ask)
                    break
            else:
                self.asked[receiver].append(ask)
        return ask.meeting

    def _deliver(self, receiver: int, message: _Sent, ask: _Asked) -> None:
        if message.call != ask.call:
            names = self.members[message.sender].rank, self.members[receiver].rank
            ask.meeting.error = message_mismatch(*names, message.call, ask.call)
        else:
            ask.tensor.copy_(message.tensor.reshape(ask.tensor.shape))
        ask.meeting.source = message.sender
        ask.meeting.over = True
        self.members[receiver].called()
        self.changed.notify_all()

    def leave(self, member: ThreadMember) -> None:
        """Note that a member has left this group and the smaller groups."""
        with self.changed:
            self.left.add(self.members.index(member))
            self.changed.notify_all()
        for child in tuple(self.children.values()):
            if member in child.members:
                child.leave(member)

    def wait(self, meeting: Meeting, rank: int) -> None:
        """Wait until the meeting is over; raise when it failed, or when a member will not come."""
        started = time.monotonic()
        with self.changed:
            while not meeting.over:
                self.changed.wait(LOOK_EVERY_S)
                if not meeting.over:
                    self._look(meeting, rank, time.monotonic() - started)
        self.members[rank].beat()
        if meeting.error is not None:
            raise meeting.error

    def look(self, meeting: Meeting, rank: int, waited_s: float) -> None:
        """Raise when a member will not come to a meeting that is not over."""
        with self.changed:
            if not meeting.over:
                self._look(meeting, rank, waited_s)

    def _look(self, meeting: Meeting, rank: int, waited_s: float) -> None:
        missing = [place for place in meeting.missing() if place != rank]
        facts = [self._facts(place, rank, meeting.label, waited_s) for place in missing]
        if meeting.any_will_do:
            error = self.judge.judge_any(facts)
        else:
            error = self.judge.judge_all(facts)
        if error is not None:
            raise error
        self.members[rank].wait_for(facts, [self.members[place] for place in missing])

    def check_members(self, rank: int, label: str, waited_s: float) -> None:
        """Raise when a member will not come, for a wait outside of all meetings."""
        with self.changed:
            others = [place for place in range(len(self.members)) if place != rank]
            facts = [self._facts(place, rank, label, waited_s) for place in others]
            error = self.judge.judge_idle(facts)
            if error is not None:
                raise error
            if waited_s:
                self.members[rank].wait_for(facts, [self.members[place] for place in others])

    def _facts(self, place: int, judged_by: int, label: str, waited_s: float) -> Facts:
        member = self.members[place]
        cause = cause_of(member, self.members[judged_by], ThreadMember.waits_for)
        last_words = member.last_words
        if last_words is None and place in self.left:
            last_words = LastWords.of(None, member.rank)
        return Facts(
            member.rank,
            label,
            waited_s,
            last_words=last_words,
            silent_s=(time.monotonic_ns() - member.alive_ns) / 1e9,
            in_debugger=lambda: _held_by_debugger(member),
            waits_for=cause and cause.rank,
            stack=lambda: _stack(member.thread),
        )


def _held_by_debugger(member: ThreadMember) -> bool:
    """Whether the thread is at a breakpoint. That counts as progress, so those who wait for it are not stuck either."""
    is_held = any(frame.f_trace is not None for frame in frames_of(member.thread))
    if is_held:
        member.beat()
    return is_held


def _stack(thread: int | None) -> str:
    frames = reversed(frames_of(thread))
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    return "".join(summary.format()) or "    (its thread has ended or never began)"
