"""Carries messages over shaped links: several lanes over one group's send and recv, each message delayed by its link.

One direction of a link is a timetable, the `Wire`. Bytes go one after the other, at the link's rate; the last one then
needs the latency to get there::

    gone    = max(now, gone of the message before) + bytes / rate
    arrived = gone + latency

A message travels as a *parcel*: a frame (lane, call, time of arrival, bytes), then its data. The sender puts it on the
wire to its receiver and gives it to the group at once; the receiver holds it until it is due. All workers of one
machine read the same monotonic clock, so the time in the frame means the same to both. The data moves while the time
passes, and a link is exactly as slow as requested as long as the group below is faster.

Lanes (`shaped.py`) separate what must not meet: a program's own messages, each group's collectives, the signatures that
are compared before them. They share the wires. There is no reading thread: a caller that waits for a parcel receives
what comes for all lanes. So waits end with the errors of the group below, and only while a caller waits.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Self, cast, final

import torch
from torch import Tensor

from shoal.comm.blocking import BlockingThread
from shoal.comm.group import Group, Receipt, Work
from shoal.comm.shared_memory.progress import SLEEP_S, YIELD_S
from shoal.comm.signature import Signature, decode, encode, message_mismatch, signature_of
from shoal.comm.wrapped_group import WrappedGroup
from shoal.config.conditions import Link
from shoal.errors import GroupError, MemberError

FRAME_WORDS = 5
LEFT = 0
"""In place of a call: the sender has left this lane's group."""
BEAT_EVERY_S = 0.5
LOOK_EVERY_S = 0.05
POLL_S = 0.0002
"""Between two looks for a message from anyone."""
SPIN_NS = 100_000
"""The last part of a sleep is spent spinning, because the system wakes a process about this much too late."""
Clock = Callable[[], int]
Sleep = Callable[[float], None]


@final
class Wire:
    """What one worker sends to another. Without a link, everything arrives as it is sent.

    >>> wire = Wire(Link((0, 1), bits_per_s=8e6, latency_s=0.005))
    >>> wire.admit(now_ns=0, num_bytes=1000), wire.admit(now_ns=0, num_bytes=1000)
    ((1000000, 6000000), (2000000, 7000000))
    """

    def __init__(self, link: Link | None) -> None:
        self._ns_per_byte = 8e9 / link.bits_per_s if link else 0.0
        self._latency_ns = round(1e9 * link.latency_s) if link else 0
        self._free_ns = 0.0

    def admit(self, now_ns: int, num_bytes: int) -> tuple[int, int]:
        """Put a message on the wire, behind all that are still on it: when its last byte has left, and has arrived."""
        # The wire's own time is kept as a float of nanoseconds: rounding would add up over small messages.
        self._free_ns = max(float(now_ns), self._free_ns) + num_bytes * self._ns_per_byte
        gone_ns = round(self._free_ns)
        return gone_ns, gone_ns + self._latency_ns


@final
class Serialised(WrappedGroup):
    """The same group, for messages from any thread."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._lock = threading.Lock()
        self._mover: BlockingThread | None = None

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Work:
        """Send to one member. What does not leave at once leaves while the caller does something else."""
        with self._lock:
            work = _SerialisedWork(self._group.issue_send(call, tensor, to), self._lock)
        if not work.done():
            if self._mover is None:
                self._mover = BlockingThread("shoal long messages")
            self._mover.add(work.wait)
        return work

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> Receipt:
        """Receive a message."""
        with self._lock:
            return _SerialisedWork(self._group.issue_recv(call, tensor, sender), self._lock)

    def around(self, group: Group, ranks: Sequence[int]) -> Self:
        """The same wrapper around a smaller group of these ranks."""
        return type(self)(group)

    def close(self) -> None:
        """Leave the group."""
        if self._mover is not None:
            self._mover.close()
            self._mover = None
        with self._lock:
            super().close()


@final
class _SerialisedWork:
    """A message that any thread may wait for."""

    def __init__(self, work: Work, lock: threading.Lock) -> None:
        self._work, self._lock = work, lock

    def wait(self) -> None:
        # Looks until it is over, as the group itself waits; other threads have their turns between two looks.
        started = time.monotonic()
        while not self.done():
            time.sleep(0.0 if time.monotonic() - started < YIELD_S else SLEEP_S)

    def done(self) -> bool:
        with self._lock:
            return self._work.done()

    @property
    def source(self) -> int:
        return cast(Receipt, self._work).source  # only a `recv` has one


class Parcel(NamedTuple):
    """A message that has come: the signature from its sender, when it is due, its bytes."""

    call: Signature | None
    due_ns: int
    data: Tensor


@final
class ParcelSlot:
    """Where the next parcel of a lane goes."""

    def __init__(self, lane: int, sender: int) -> None:
        self.lane, self.sender = lane, sender
        self.parcel: Parcel | None = None


@final
class Courier:
    """All that one worker sends and receives, in its group and in all that were split from it.

    `wires` has one wire per member of `group`; ranks are that group's. Several threads may use it, one per lane.
    """

    def __init__(
        self,
        group: Group,
        wires: Sequence[Wire],
        clock_ns: Clock = time.monotonic_ns,
        sleep: Sleep = time.sleep,
    ) -> None:
        self.group = group
        self._wires = list(wires)
        self._clock_ns, self.sleep = clock_ns, sleep
        self._intakes = {rank: _Intake(group, rank) for rank in range(group.size) if rank != group.rank}
        self._sending = threading.Lock()
        self._unfinished: list[Work] = []
        """Sends that the group below has yet to finish: it may wait for the receiver, and this member does not."""
        self._changed = threading.Condition()
        self._being_read: set[int] = set()
        self._asked: dict[tuple[int, int], deque[ParcelSlot]] = defaultdict(deque)
        self._kept: dict[tuple[int, int], deque[Parcel]] = defaultdict(deque)
        self._left: set[tuple[int, int]] = set()

    # Sending.

    def send(self, lane: int, tensor: Tensor, to: int) -> int:
        """Put a tensor on the wire to a member; returns the time when its last byte leaves."""
        call = signature_of("message", self.group.size, tensor)
        # A copy, so that the caller waits for the wire and never for a busy receiver.
        data = tensor.detach().reshape(-1).to("cpu", copy=True)
        with self._sending:
            gone_ns, arrived_ns = self._wires[to].admit(self._clock_ns(), tensor.nbytes)
            self._hand_over(lane, encode(call), call.numel, arrived_ns, data, to)
        return gone_ns

    def announce(self, lane: int, call: Signature, to: int) -> None:
        """Send a signature to a member, not delayed: without the checks it would not be sent."""
        with self._sending:
            self._hand_over(lane, encode(call), call.numel, 0, torch.empty(0), to)

    def leave(self, lane: int, to: int) -> None:
        """Report to a member that no more will come on this lane."""
        with self._sending:
            self._hand_over(lane, LEFT, 0, 0, torch.empty(0), to)
            del self._unfinished[-1]  # it does not matter whether it is ever read

    def _hand_over(self, lane: int, code: int, numel: int, due_ns: int, data: Tensor, to: int) -> None:
        self._unfinished = [work for work in self._unfinished if not work.done()]
        frame = torch.tensor([lane, code, numel, due_ns, data.nbytes], dtype=torch.int64)
        self._unfinished.append(self.group.send(frame, to))
        if data.nbytes:
            self._unfinished.append(self.group.send(data.view(torch.uint8), to))

    def finish(self) -> None:
        """Wait until everything sent has left this member, or its receiver is gone."""
        with self._sending, suppress(GroupError):
            for work in self._unfinished:
                work.wait()

    # Receiving.

    def ask(self, lane: int, sender: int) -> ParcelSlot:
        """The slot of the next parcel of a lane; parcels fill slots in the order of asking."""
        slot, key = ParcelSlot(lane, sender), (lane, sender)
        with self._changed:
            if self._kept[key]:
                slot.parcel = self._kept[key].popleft()
            else:
                self._asked[key].append(slot)
        return slot

    def wait(self, slot: ParcelSlot) -> Parcel:
        """Wait until the parcel has come, whether due or not; raise when its sender is gone."""
        while slot.parcel is None:
            if self._may_read(slot):
                self._read(slot.sender, block=True)
        return slot.parcel

    def is_here(self, slot: ParcelSlot) -> bool:
        """Whether the parcel has come and is due. Asking receives what has come."""
        if slot.parcel is None and slot.sender not in self._being_read and self._may_read(slot):
            self._read(slot.sender, block=False)
        return slot.parcel is not None and self.is_past(slot.parcel.due_ns)

    def take_any(self, lane: int, ranks: Sequence[int]) -> tuple[int, Parcel] | None:
        """A parcel of a lane that is due and that no `ask` waits for, with its sender; None while there is none.

        Raises when a sender fails, or when all have left.
        """
        gone: list[MemberError] = []
        others = [rank for rank in ranks if rank != self.group.rank]
        for sender in others:
            slot = ParcelSlot(lane, sender)
            try:
                if not self._kept[lane, sender] and self._may_read(slot):
                    self._read(sender, block=False)
            except MemberError as error:
                if error.reason not in ("left", "stuck", "stopped"):
                    raise
                gone.append(error)
            with self._changed:
                kept = self._kept[lane, sender]
                if kept and self.is_past(kept[0].due_ns):
                    return sender, kept.popleft()
        if gone and len(gone) == len(others):
            raise gone[0]
        return None

    def put(self, parcel: Parcel, sender: int, tensor: Tensor, expected: Signature) -> None:
        """Copy a parcel to where it is expected."""
        if parcel.call is not None and parcel.call != expected:
            raise message_mismatch(sender, self.group.rank, parcel.call, expected)
        if parcel.data.numel():
            tensor.copy_(parcel.data.view(tensor.dtype).view(tensor.shape))

    def _may_read(self, slot: ParcelSlot) -> bool:
        """Claim the reading of what a member sends, or wait a moment while another thread has it."""
        with self._changed:
            if slot.parcel is not None:
                return False
            if (slot.lane, slot.sender) in self._left:
                raise MemberError(
                    f"rank {slot.sender} left the group before send to rank {self.group.rank}",
                    rank=slot.sender,
                    reason="left",
                )
            if slot.sender in self._being_read:
                self._changed.wait(LOOK_EVERY_S)
                return False
            self._being_read.add(slot.sender)
            return True

    def _read(self, sender: int, block: bool) -> None:
        """Receive the next parcel of a member, whatever its lane."""
        arrived: tuple[int, Parcel] | None = None
        try:
            arrived = self._intakes[sender].next(block)
        finally:
            with self._changed:
                self._being_read.discard(sender)
                if arrived is not None:
                    self._deliver(sender, *arrived)
                self._changed.notify_all()

    def _deliver(self, sender: int, lane: int, parcel: Parcel) -> None:
        key = (lane, sender)
        if parcel.call is None:
            self._left.add(key)
        elif self._asked[key]:
            self._asked[key].popleft().parcel = parcel
        else:
            self._kept[key].append(parcel)

    # Time.

    def is_past(self, time_ns: int) -> bool:
        """Whether that time has come."""
        return self._clock_ns() >= time_ns

    def sleep_until(self, time_ns: int) -> None:
        """Sleep, and report progress meanwhile: a member that waits for a slow link is not stuck."""
        while (left_ns := time_ns - self._clock_ns()) > 0:
            if left_ns > SPIN_NS:
                self.sleep(min((left_ns - SPIN_NS) / 1e9, BEAT_EVERY_S))
                self.group.beat()
            else:
                self.sleep(0)


@final
class _Intake:
    """What one member sends: a frame, its data, the next frame."""

    def __init__(self, group: Group, sender: int) -> None:
        self._group, self._sender = group, sender
        self._parcels = self._read()
        self._work: Work | None = None

    def next(self, block: bool) -> tuple[int, Parcel] | None:
        """The next parcel and its lane; None when it has not come and `block` is false."""
        while True:
            if self._work is None:
                arrived = next(self._parcels)
                if isinstance(arrived, tuple):
                    return arrived
                self._work = arrived
            if block:
                self._work.wait()
            elif not self._work.done():
                return None
            self._work = None

    def _read(self) -> Iterator[Work | tuple[int, Parcel]]:
        """Works to wait for, and each parcel once it is complete."""
        while True:
            frame = torch.empty(FRAME_WORDS, dtype=torch.int64)
            yield self._group.recv(frame, self._sender)
            lane, code, numel, due_ns, num_bytes = frame.tolist()
            data = torch.empty(num_bytes, dtype=torch.uint8)
            if num_bytes:
                yield self._group.recv(data, self._sender)
            yield lane, Parcel(None if code == LEFT else decode(code, numel), due_ns, data)
