"""Messages between two members: chunks in a small ring of boxes, one counter for each side.

The sender fills box c mod NUM_BOXES with chunk c when fewer than NUM_BOXES chunks are under way, then counts it as
sent; the receiver copies it out, then counts it as taken. Short messages leave at once; long ones move whenever either
side calls or waits.
"""

import time
from collections import deque
from functools import partial
from typing import final

import torch
from torch import Tensor

from shoal.comm.algorithms import flat
from shoal.comm.group import ANYONE
from shoal.comm.shared_memory.arena import BOX_BYTES, LINE, NUM_BOXES, Arena, ArenaLayout, find_fence
from shoal.comm.shared_memory.progress import Channel, Pending, ProgressEngine, Roster
from shoal.comm.signature import Signature, decode, encode, message_mismatch


@final
class PendingMessage(Pending):
    """A message on one side, which a caller may wait for; `source` is the rank that sends it."""

    __slots__ = ("call", "data", "source", "tensor")

    def __init__(self, progress: ProgressEngine, channel: Channel, call: Signature, tensor: Tensor) -> None:
        super().__init__(progress, channel)
        self.call, self.tensor = call, tensor
        self.data = flat(tensor).view(torch.uint8)
        """The bytes of `tensor`, or of a copy where it is strided."""
        self.source = ANYONE


class _Messages(Channel):
    """Messages that go in order."""

    def __init__(self, progress: ProgressEngine, roster: Roster) -> None:
        self.roster = roster
        self._progress = progress
        self._queue: deque[PendingMessage] = deque()

    def issue(self, call: Signature, tensor: Tensor) -> PendingMessage:
        if self._progress.error is not None:
            raise self._progress.error
        message = PendingMessage(self._progress, self, call, tensor)
        self.put(message)
        self._progress.advance()
        return message

    def put(self, message: PendingMessage) -> None:
        self._queue.append(message)
        if len(self._queue) == 1:
            self._progress.add(self)


@final
class _Mailbox(_Messages):
    """All messages from this member to another (`outgoing`), or from the other to this one."""

    def __init__(
        self, progress: ProgressEngine, arena: Arena, roster: Roster, peer: int, outgoing: bool
    ) -> None:
        super().__init__(progress, roster)
        self._peer, self._outgoing = peer, outgoing
        sender, receiver = (roster.rank, peer) if outgoing else (peer, roster.rank)
        self._sender = sender
        layout = ArenaLayout(len(roster.boards))
        control = layout.box_control(sender, receiver)
        self._words = arena.words
        self._sent, self._taken = control, control + LINE
        self._headers = [control + (2 + box) * LINE for box in range(NUM_BOXES)]
        starts = [layout.box(sender, receiver, box) for box in range(NUM_BOXES)]
        self._boxes = [arena.memory[start : start + BOX_BYTES] for start in starts]
        self._fence = find_fence() or (lambda: None)
        home = roster.homes[roster.rank]
        self._alive_words, self._my_alive = home.words, home.alive
        self._moved_bytes = 0
        """How much of the first message has moved."""
        self._chunks = 0
        """How many chunks this side has sent or taken so far."""

    def put(self, message: PendingMessage) -> None:
        message.source, message.channel = self._sender, self
        super().put(message)

    def has_unclaimed(self) -> bool:
        """Whether a message has begun to arrive that no `recv` has named."""
        return not self._queue and self._words[self._sent] > self._chunks

    def advance(self) -> bool:
        moved = False
        while self._queue and self.ready():
            self._send_chunk() if self._outgoing else self._take_chunk()
            self._alive_words[self._my_alive] = time.monotonic_ns()
            moved = True
        return moved

    def ready(self) -> bool:
        if self._outgoing:
            return self._chunks - self._words[self._taken] < NUM_BOXES
        return self._words[self._sent] > self._chunks

    def _send_chunk(self) -> None:
        message, box = self._queue[0], self._chunks % NUM_BOXES
        if self._moved_bytes == 0:
            self._words[self._headers[box]] = encode(message.call)
            self._words[self._headers[box] + 1] = message.call.numel
        data = message.data[self._moved_bytes : self._moved_bytes + BOX_BYTES]
        self._fence()
        self._boxes[box][: data.numel()].copy_(data)
        self._count(self._sent, data.numel())

    def _take_chunk(self) -> None:
        message, box = self._queue[0], self._chunks % NUM_BOXES
        self._fence()
        if self._moved_bytes == 0:
            at = self._headers[box]
            sent = decode(self._words[at], self._words[at + 1])
            if sent != message.call:
                names = self.roster.world_ranks
                raise message_mismatch(names[self._peer], names[self.roster.rank], sent, message.call)
        data = message.data[self._moved_bytes : self._moved_bytes + BOX_BYTES]
        data.copy_(self._boxes[box][: data.numel()])
        self._count(self._taken, data.numel())

    def _count(self, counter: int, num_bytes: int) -> None:
        self._fence()
        self._chunks += 1
        self._words[counter] = self._chunks
        self._moved_bytes += num_bytes
        message = self._queue[0]
        if self._moved_bytes == message.data.numel():
            self._moved_bytes = 0
            self._queue.popleft()
            tensor = message.tensor
            if not self._outgoing and message.data.data_ptr() != tensor.data_ptr():
                tensor.copy_(message.data.view(tensor.dtype).view(tensor.shape))
            message.over = True
            if not self._queue:
                self._progress.remove(self)

    def missing(self) -> list[int]:
        return [] if not self._queue or self.ready() else [self._peer]

    def label(self) -> str:
        name = self.roster.world_ranks[self.roster.rank]
        return f"recv from rank {name}" if self._outgoing else f"send to rank {name}"


@final
class _FromAnyone(_Messages):
    """Receives from anyone: gives each `recv` to the mailbox in which a message arrives first."""

    any_will_do = True

    def __init__(self, progress: ProgressEngine, mail: "Mail") -> None:
        super().__init__(progress, mail.roster)
        self._mail = mail
        self._next = 0
        """Where to look first: past the last sender, so that none waits for ever."""

    def ready(self) -> bool:
        return any(self._mail.incoming(rank).has_unclaimed() for rank in self.missing())

    def advance(self) -> bool:
        size = len(self.roster.boards)
        for sender in sorted(self.missing(), key=lambda rank: (rank - self._next) % size):
            mailbox = self._mail.incoming(sender)
            if mailbox.has_unclaimed():
                self._next = sender + 1
                mailbox.put(self._queue.popleft())
                mailbox.advance()  # at once: who asks rarely must not have to ask twice
                if not self._queue:
                    self._progress.remove(self)
                return True
        return False

    def missing(self) -> list[int]:
        roster = self.roster
        return [rank for rank in range(len(roster.boards)) if rank not in (roster.rank, *roster.dead)]

    def label(self) -> str:
        return f"send to rank {self.roster.world_ranks[self.roster.rank]}"


@final
class Mail:
    """All mailboxes of one member of one group, made when first used."""

    def __init__(self, progress: ProgressEngine, arena: Arena, roster: Roster) -> None:
        self.roster = roster
        self.from_anyone = _FromAnyone(progress, self)
        self._progress = progress
        self._make = partial(_Mailbox, progress, arena, roster)
        self._boxes: dict[tuple[int, bool], _Mailbox] = {}

    def outgoing(self, to: int) -> _Mailbox:
        """The mailbox of messages to a member."""
        return self._box(to, True)

    def incoming(self, sender: int) -> _Mailbox:
        """The mailbox of messages from a member."""
        return self._box(sender, False)

    def _box(self, peer: int, outgoing: bool) -> _Mailbox:
        if (peer, outgoing) not in self._boxes:
            self._boxes[peer, outgoing] = self._make(peer, outgoing)
        return self._boxes[peer, outgoing]

    def close(self) -> None:
        """Move no more messages."""
        for channel in (self.from_anyone, *self._boxes.values()):
            self._progress.remove(channel)
