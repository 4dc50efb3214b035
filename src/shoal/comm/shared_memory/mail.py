"""Messages between two members: chunks in a small ring of boxes, one counter for each side.

The sender fills box c mod NUM_BOXES with chunk c when fewer than NUM_BOXES chunks are on their way, then
counts it as sent; the receiver copies it out, then counts it as taken. Short messages are gone at once;
long ones move on whenever either side calls or waits.
"""

import time
from collections import deque
from typing import NamedTuple, final

import torch
from torch import Tensor

from shoal.comm.calls import Call, decode, encode, message_mismatch
from shoal.comm.shared_memory.arena import Arena
from shoal.comm.shared_memory.board import BOX_BYTES, LINE, NUM_BOXES, Layout
from shoal.comm.shared_memory.engine import Engine, Pending, Roster
from shoal.comm.shared_memory.fences import find_fence


class Message(NamedTuple):
    """One message on one side: its bytes, and the strided original of a copy that must be written back."""

    call: Call
    data: Tensor
    pending: Pending
    original: Tensor | None


@final
class MailLane:
    """All messages from this member to another (`outgoing`), or from the other to this one."""

    def __init__(self, engine: Engine, arena: Arena, roster: Roster, peer: int, outgoing: bool) -> None:
        self.roster = roster
        self._engine, self._peer, self._outgoing = engine, peer, outgoing
        sender, receiver = (roster.rank, peer) if outgoing else (peer, roster.rank)
        layout = Layout(len(roster.boards))
        control = layout.box_control(sender, receiver)
        self._words = arena.words
        self._sent, self._taken = control, control + LINE
        self._headers = [control + (2 + box) * LINE for box in range(NUM_BOXES)]
        starts = [layout.box(sender, receiver, box) for box in range(NUM_BOXES)]
        self._boxes = [arena.memory[start : start + BOX_BYTES] for start in starts]
        self._fence = find_fence() or (lambda: None)
        home = roster.homes[roster.rank]
        self._alive_words, self._my_alive = home.words, home.alive
        self._queue: deque[Message] = deque()
        self._moved_bytes = 0
        """How much of the first message has gone through."""
        self._chunks = 0
        """How many chunks this side has sent or taken since the beginning."""

    def issue(self, call: Call, tensor: Tensor) -> Pending:
        """Begin to send, or to receive into, the tensor."""
        if self._engine.error is not None:
            raise self._engine.error
        tensor = tensor.detach()
        flat = tensor.contiguous()
        copied = flat.data_ptr() != tensor.data_ptr()
        pending = Pending(self._engine, self)
        data = flat.view(-1).view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)
        self._queue.append(Message(call, data, pending, tensor if copied and not self._outgoing else None))
        if len(self._queue) == 1:
            self._engine.add(self)
        self._engine.advance()
        return pending

    def advance(self) -> bool:
        """Move as many chunks as there is room for, or as have come."""
        moved = False
        while self._queue and self._ready():
            self._send_chunk() if self._outgoing else self._take_chunk()
            self._alive_words[self._my_alive] = time.monotonic_ns()
            moved = True
        return moved

    def _ready(self) -> bool:
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
            if message.original is not None:
                flat = message.data.view(message.original.dtype)
                message.original.copy_(flat.view(message.original.shape))
            message.pending.over = True
            if not self._queue:
                self._engine.remove(self)

    def missing(self) -> list[int]:
        """The other side, unless this side can move."""
        return [] if not self._queue or self._ready() else [self._peer]

    def label(self) -> str:
        """What the other side has yet to do."""
        name = self.roster.world_ranks[self.roster.rank]
        return f"recv from rank {name}" if self._outgoing else f"send to rank {name}"
