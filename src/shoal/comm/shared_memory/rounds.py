"""Collectives as rounds: in each, every member puts something into a slot, and takes from all slots.

A member posts round t by filling slot t mod NUM_SLOTS and then setting its counter to t + 1. It may take round t once
every counter has passed t. That one counter is the whole synchronisation. No member fills a slot that another still
reads: a member posts at most AHEAD rounds before it has taken them, so a member that sees all others post round
t − AHEAD knows that all have taken round t − 2 · AHEAD, whose slot is then free.

A *small* collective is one round. A *large* one begins with a round that carries only headers. Where all tensors are in
memory from `empty()`, members then work in each other's memory, and one more round says that they have finished. Where
not, the data goes through the slots block by block.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import final

from torch import Tensor

from shoal.comm.algorithms import flat, write_back
from shoal.comm.group import Finished, Work
from shoal.comm.shared_memory.arena import NUM_SLOTS, SLOT_BYTES, Arena, find_fence, no_fence
from shoal.comm.shared_memory.direct import ELSEWHERE, Direct, Places, Regions, choose_direct
from shoal.comm.shared_memory.progress import Channel, Pending, ProgressEngine, Roster
from shoal.comm.shared_memory.staged import STAGED, Slots
from shoal.comm.signature import FILLS_WHOLE, Signature, check_open, decode, encode, mismatch
from shoal.errors import GroupError

SMALL_BYTES = 256 * 1024
"""Up to this many bytes in the slots of all members together a collective is one round."""
AHEAD = NUM_SLOTS // 2
MAX_PLANS = 4096
_FINISHED = Finished()


@final
class _CallPlan:
    """How a collective of one signature goes: worked out once, because a step repeats its calls."""

    __slots__ = ("block", "call", "code", "fills_whole", "give", "numel", "small", "take")

    def __init__(self, call: Signature, size: int) -> None:
        way = STAGED[call.operation]
        self.call, self.code, self.numel = call, encode(call), call.numel
        self.give, self.take = way.give, way.take
        self.fills_whole = call.operation in FILLS_WHOLE
        width = call.dtype.itemsize * (size if way.rows else 1)
        self.small = call.numel * width * size <= SMALL_BYTES
        self.block = max(1, call.numel if self.small else SLOT_BYTES // width)
        """Elements of the piece per round."""

    def table(self, tensor: Tensor) -> Tensor:
        """A flat whole as a table, one piece in each row."""
        return tensor.view(-1, self.numel) if self.numel else tensor.view(1, 0)


@final
class _Collective(Pending):
    """One collective: its flat tensors, and `target`, the strided tensor that gets the result of a copy."""

    __slots__ = ("blocks", "direct", "num_rounds", "piece", "plan", "sequence", "target", "whole")

    def __init__(
        self,
        progress: ProgressEngine,
        channel: Channel,
        plan: _CallPlan,
        piece: Tensor,
        whole: Tensor | None,
        target: Tensor | None,
        sequence: int,
    ) -> None:
        super().__init__(progress, channel)
        self.plan, self.piece, self.whole = plan, piece, whole
        self.target, self.sequence = target, sequence
        self.direct: Direct | None = None
        self.num_rounds = 1
        """Of a large collective this is known, and set, once all headers have been seen."""
        self.blocks: Sequence[tuple[Tensor, Tensor | None]] = ()
        """What of the piece and of the whole goes through the slots in each round."""

    def cut(self) -> None:
        """Cut the tensors of a large collective into blocks, where they go through slots."""
        plan, block = self.plan, self.plan.block
        is_table = plan.call.operation == "all_to_all"
        pieces = (plan.table(self.piece) if is_table else self.piece).split(block, dim=-1)
        rows = [None] * len(pieces) if self.whole is None else plan.table(self.whole).split(block, dim=1)
        self.blocks = list(zip(pieces, rows, strict=True))


@final
class Rounds(Channel):
    """The channel of a group's collectives."""

    all_meet = True

    def __init__(self, progress: ProgressEngine, arena: Arena, roster: Roster, regions: Regions) -> None:
        self.roster = roster
        self.rank, self.size = roster.rank, len(roster.boards)
        self._progress = progress
        self._slots = Slots(arena, self.rank, self.size)
        self._words = arena.words
        self._regions = regions
        fence = find_fence()
        self._fence = None if fence is no_fence else fence
        self._plans: dict[Signature, _CallPlan] = {}
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
        self._queue: deque[_Collective] = deque()
        self._posting = 0
        """The place in the queue of the collective whose rounds are being posted."""
        self._posted_of_it = 0
        self._taken_of_first = 0
        self._posted = self._taken = 0
        self.closed = False
        self.sequence = 0
        """How many collectives this member has begun."""

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Begin a collective: post what can be posted, and finish it at once where all others have posted."""
        progress = self._progress
        if progress.error is not None:
            raise progress.error
        if self.closed:
            check_open(call.operation, True)
        plan = self._plans.get(call) or self._make_plan(call)
        self.sequence += 1
        row = flat(piece)
        rows = None if whole is None else flat(whole)
        target = whole if plan.fills_whole else piece
        if target is row or target is rows:
            target = None
        is_posted = plan.small and not self._queue
        if is_posted:
            self._post_small(plan, row, rows)
        if progress.channels:
            progress.advance()
        if is_posted and self.ready():
            try:
                self._take_small(plan, row, rows, target, self.sequence)
            except GroupError as error:
                progress.fail(error)
                raise
            return _FINISHED
        item = _Collective(progress, self, plan, row, rows, target, self.sequence)
        self._queue.append(item)
        if len(self._queue) == 1:
            progress.add(self)
        if is_posted:
            self._posting = 1
        else:
            progress.advance()
        return item

    def _make_plan(self, call: Signature) -> _CallPlan:
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        plan = self._plans[call] = _CallPlan(call, self.size)
        return plan

    # Small collectives: one round.

    def _post_small(self, plan: _CallPlan, piece: Tensor, whole: Tensor | None) -> None:
        slot, words = self._posted % NUM_SLOTS, self._words
        at = self._my_headers[slot]
        words[at] = plan.code
        words[at + 1] = plan.numel
        plan.give(self._slots, plan.call, piece, None if whole is None else plan.table(whole), slot)
        self._count_posted()

    def _count_posted(self) -> None:
        if self._fence is not None:
            self._fence()
        self._posted += 1
        self._words[self._my_counter] = self._posted
        self._alive_words[self._my_alive] = time.monotonic_ns()

    def ready(self) -> bool:
        """Whether the next round can be taken: all members have posted it."""
        taken, words = self._taken, self._words
        if self._posted <= taken:
            return False
        for counter in self._counters:  # noqa: SIM110 (a generator would take longer than the loop)
            if words[counter] <= taken:
                return False
        return True

    def _take_small(
        self, plan: _CallPlan, piece: Tensor, whole: Tensor | None, target: Tensor | None, sequence: int
    ) -> None:
        slot = self._taken % NUM_SLOTS
        if self._fence is not None:
            self._fence()
        self._compare_headers(plan, sequence, slot)
        plan.take(self._slots, plan.call, piece, None if whole is None else plan.table(whole), slot)
        self._taken += 1
        if target is not None:
            write_back(target, whole if plan.fills_whole and whole is not None else piece)

    # One step of the channel.

    def advance(self) -> bool:
        """Post and take what can be posted and taken without waiting."""
        moved = False
        while self._queue:
            moved |= self._post()
            if not self.ready():
                break
            self._take()
            moved = True
        return moved

    def _post(self) -> bool:
        moved = False
        while self._posting < len(self._queue) and self._posted - self._taken < AHEAD:
            item = self._queue[self._posting]
            if item.plan.small:
                self._post_small(item.plan, item.piece, item.whole)
                self._posting += 1
            else:
                step = self._posted_of_it
                # The first round, the headers, must have been taken before it is known what to post.
                if step and (self._posting or not self._taken_of_first):
                    break
                self._post_large(item, step)
                self._posted_of_it += 1
                if step and self._posted_of_it == item.num_rounds:
                    self._posting += 1
                    self._posted_of_it = 0
            moved = True
        return moved

    def _post_large(self, item: _Collective, step: int) -> None:
        slot, words, plan = self._posted % NUM_SLOTS, self._words, item.plan
        if step == 0:
            at = self._my_headers[slot]
            words[at], words[at + 1] = plan.code, plan.numel
            words[at + 2] = self._regions.place_of(item.piece)
            words[at + 3] = ELSEWHERE if item.whole is None else self._regions.place_of(item.whole)
        elif item.direct is None:
            plan.give(self._slots, plan.call, *item.blocks[step - 1], slot)
        self._count_posted()

    def _take(self) -> None:
        item = self._queue[0]
        plan, step, slot = item.plan, self._taken_of_first, self._taken % NUM_SLOTS
        if plan.small:
            self._take_small(plan, item.piece, item.whole, item.target, item.sequence)
        else:
            if self._fence is not None:
                self._fence()
            if step == 0:
                self._compare_headers(plan, item.sequence, slot)
                self._choose_way(item, slot)
            elif item.direct is None:
                plan.take(self._slots, plan.call, *item.blocks[step - 1], slot)
            self._taken += 1
            self._taken_of_first += 1
            self._alive_words[self._my_alive] = time.monotonic_ns()
            if self._taken_of_first < item.num_rounds:
                return
            self._taken_of_first = 0
            if item.target is not None:
                write_back(
                    item.target, item.whole if plan.fills_whole and item.whole is not None else item.piece
                )
        self._queue.popleft()
        self._posting -= 1
        item.over = True
        if not self._queue:
            self._progress.remove(self)

    def _compare_headers(self, plan: _CallPlan, sequence: int, slot: int) -> None:
        words, code, numel = self._words, plan.code, plan.numel
        for _, at in self._headers[slot]:
            if words[at] != code or words[at + 1] != numel:
                calls = {rank: decode(words[at], words[at + 1]) for rank, at in self._headers[slot]}
                names = self.roster.world_ranks
                calls[self.rank] = plan.call
                raise mismatch(sequence, {names[rank]: call for rank, call in calls.items()})

    def _choose_way(self, item: _Collective, slot: int) -> None:
        """After the headers: work in all members' memory if all tensors allow it, else go block by block."""
        pieces, wholes = [0] * self.size, [0] * self.size
        for rank, at in [*self._headers[slot], (self.rank, self._my_headers[slot])]:
            pieces[rank], wholes[rank] = self._words[at + 2], self._words[at + 3]
        places = Places(self._regions, item.plan.call, self.rank, pieces, wholes)
        item.direct = choose_direct(places)
        if item.direct is not None:
            item.direct(places, item.piece, item.whole)
            item.num_rounds = 2
        else:
            item.cut()
            item.num_rounds = 1 + len(item.blocks)

    # What a wait asks.

    def missing(self) -> list[int]:
        """The members that have not posted the round that is to be taken next."""
        return [
            rank for rank, board in enumerate(self.roster.boards) if self._words[board.posted] <= self._taken
        ]

    def label(self) -> str:
        """The collective that is to be taken next."""
        return (
            f"{self._queue[0].plan.call.operation} #{self._queue[0].sequence}" if self._queue else "the end"
        )
