"""Collectives as rounds: in each, every member puts something into a slot, and takes from all slots.

A member posts round t by filling slot t mod NUM_SLOTS and then setting its counter to t + 1. It may take
round t once every counter has passed t. That one counter is the whole synchronisation: nobody fills a
slot that is still being read, because a member posts at most AHEAD rounds before it has taken, so whoever
has seen everyone post round t − AHEAD knows that everyone has taken round t − 2 · AHEAD, whose slot is
then free.

A *small* collective is one round. A *large* one begins with a round that carries only headers. Where all
tensors lie in memory from `empty()`, members then work on each other's memory, and one more round says
that they have finished. Where not, the data goes through the slots block by block.
"""

import time
from collections import deque
from typing import final

from torch import Tensor

from shoal.comm.shared_memory.arena import Arena
from shoal.comm.shared_memory.board import NUM_SLOTS
from shoal.comm.shared_memory.collective import Collective
from shoal.comm.shared_memory.direct import choose_direct
from shoal.comm.shared_memory.fences import find_fence
from shoal.comm.shared_memory.progress import Pending, Progress, Roster
from shoal.comm.shared_memory.regions import ELSEWHERE, Regions
from shoal.comm.shared_memory.slots import Slots
from shoal.comm.shared_memory.staged import STAGED
from shoal.comm.signature import Signature, check_open, decode, mismatch

AHEAD = NUM_SLOTS // 2


@final
class Rounds:
    """The channel of a group's collectives."""

    any_will_do = False

    def __init__(self, progress: Progress, arena: Arena, roster: Roster, regions: Regions) -> None:
        self.roster = roster
        self.rank, self.size = roster.rank, len(roster.boards)
        self._progress = progress
        self._slots = Slots(arena, self.rank, self.size)
        self._words = arena.words
        self._regions = regions
        self._fence = find_fence() or (lambda: None)
        mine = roster.boards[self.rank]
        self._my_counter = mine.posted
        home = roster.homes[self.rank]
        self._alive_words, self._my_alive = home.words, home.alive
        self._my_headers = [mine.header(slot) for slot in range(NUM_SLOTS)]
        self._counters = [board.posted for board in roster.boards if board is not mine]
        self._headers = [
            [(rank, board.header(slot)) for rank, board in enumerate(roster.boards) if board is not mine]
            for slot in range(NUM_SLOTS)
        ]
        self._queue: deque[Collective] = deque()
        self._posting = 0
        """The place in the queue of the collective whose rounds are being posted."""
        self._posted_of_it = 0
        self._taken_of_first = 0
        self._posted = self._taken = 0
        self.closed = False
        self.sequence = 0
        """How many collectives this member has begun."""

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Pending:
        """Begin a collective: post what can be posted at once."""
        if self._progress.error is not None:
            raise self._progress.error
        check_open(call.operation, self.closed)
        way = STAGED[call.operation]
        pending = Pending(self._progress, self)
        self.sequence += 1
        flat_piece = _flat(piece)
        flat_whole = None if whole is None else _flat(whole)
        width = call.dtype.itemsize * (self.size if way.rows else 1)
        item = Collective(call, flat_piece, flat_whole, width, self.size, self.sequence, pending)
        # What is written must get back to where the caller has it, if its strides forced us to work on a copy.
        result, flat = (whole, flat_whole) if way.fills_whole else (piece, flat_piece)
        if (
            flat is not result
            and result is not None
            and flat is not None
            and flat.data_ptr() != result.data_ptr()
        ):
            item.after = (result.detach(), flat)
        self._queue.append(item)
        self._progress.advance()
        return pending

    # One step of the channel.

    def advance(self) -> bool:
        """Post and take what can be posted and taken without waiting."""
        if not self._queue:
            return False
        moved = self._post()
        while self._all_posted():
            self._take()
            moved = True
            if not self._queue:
                break
            self._post()
        return moved

    def _all_posted(self) -> bool:
        taken, words = self._taken, self._words
        if self._posted <= taken:
            return False
        for counter in self._counters:  # noqa: SIM110 (a generator would take longer than the loop)
            if words[counter] <= taken:
                return False
        return True

    def _post(self) -> bool:
        moved = False
        while self._posting < len(self._queue) and self._posted - self._taken < AHEAD:
            item = self._queue[self._posting]
            step = self._posted_of_it
            # A large collective must have taken its first round, the headers, before it knows what to post.
            if step and not item.small and (self._posting or not self._taken_of_first):
                break
            slot = self._posted % NUM_SLOTS
            if step == 0:
                self._write_header(item, slot)
            if item.small:
                STAGED[item.call.operation].give(self._slots, item, 0, slot)
            elif step and item.direct is None:
                STAGED[item.call.operation].give(self._slots, item, step - 1, slot)
            self._fence()
            self._posted += 1
            self._words[self._my_counter] = self._posted
            self._alive_words[self._my_alive] = time.monotonic_ns()
            moved = True
            self._posted_of_it += 1
            # How many rounds a large collective has is known only after its headers have been taken.
            if self._posted_of_it == item.num_rounds and (item.small or step):
                self._posting += 1
                self._posted_of_it = 0
            elif not item.small and step == 0:
                break
        return moved

    def _write_header(self, item: Collective, slot: int) -> None:
        words, at = self._words, self._my_headers[slot]
        words[at] = item.code
        words[at + 1] = item.call.numel
        if not item.small:
            words[at + 2] = self._regions.place_of(item.piece)
            words[at + 3] = ELSEWHERE if item.whole is None else self._regions.place_of(item.whole)

    def _take(self) -> None:
        item = self._queue[0]
        step = self._taken_of_first
        slot = self._taken % NUM_SLOTS
        self._fence()
        if step == 0:
            self._compare_headers(item, slot)
        if item.small:
            STAGED[item.call.operation].take(self._slots, item, 0, slot)
        elif step == 0:
            self._choose_way(item, slot)
        elif item.direct is None:
            STAGED[item.call.operation].take(self._slots, item, step - 1, slot)
        self._taken += 1
        self._taken_of_first += 1
        self._alive_words[self._my_alive] = time.monotonic_ns()
        if self._taken_of_first == item.num_rounds:
            self._finish(item)

    def _finish(self, item: Collective) -> None:
        self._queue.popleft()
        self._posting -= 1
        self._taken_of_first = 0
        if item.after is not None:
            target, source = item.after
            target.copy_(source.view(target.shape))
        item.pending.over = True

    def _compare_headers(self, item: Collective, slot: int) -> None:
        words, code, numel = self._words, item.code, item.call.numel
        for _, at in self._headers[slot]:
            if words[at] != code or words[at + 1] != numel:
                calls = {rank: decode(words[at], words[at + 1]) for rank, at in self._headers[slot]}
                names = self.roster.world_ranks
                calls[self.rank] = item.call
                raise mismatch(item.sequence, {names[rank]: call for rank, call in calls.items()})

    def _choose_way(self, item: Collective, slot: int) -> None:
        """After the headers: work on each other's memory if all tensors allow it, else go block by block."""
        places = [(0, 0)] * self.size
        for rank, at in [*self._headers[slot], (self.rank, self._my_headers[slot])]:
            places[rank] = (self._words[at + 2], self._words[at + 3])
        item.direct = choose_direct(item.call.operation, item.call.root, places)
        if item.direct is not None:
            item.direct(self._regions, item.call, self.rank, places, item.piece, item.whole)
            item.num_rounds = 2
        else:
            item.cut()
            item.num_rounds = 1 + len(item.pieces)

    # What a wait asks.

    def missing(self) -> list[int]:
        """Who has not posted the round that is to be taken next."""
        return [
            rank for rank, board in enumerate(self.roster.boards) if self._words[board.posted] <= self._taken
        ]

    def label(self) -> str:
        """The collective that is to be taken next."""
        return f"{self._queue[0].call.operation} #{self._queue[0].sequence}" if self._queue else "the end"


def _flat(tensor: Tensor) -> Tensor:
    """The elements in one row: the tensor's own memory where its strides allow it."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dim() == 1 and tensor.is_contiguous():
        return tensor
    return tensor.contiguous().view(-1)
