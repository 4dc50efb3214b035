"""Workers on one machine, through memory they all see: communication at the speed of memory.

- `all_reduce` of a tensor from `empty()`: each member reduces its own slice straight in everyone's
  memory, so that every byte is read once and written once. Any other tensor goes through slots that fit
  the cache.
- Nothing is left behind, whatever dies when (`arena.py`). A member that dies, is stopped, or makes no
  progress ends every wait for it (`engine.py`). Members that call different things are told so
  (`rounds.py`).

What is not safe: calls from several threads at once; a death between two members' writes leaves buffers
half reduced (the error says that they are worthless).
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import final

import torch
from torch import Tensor

from shoal.comm import stacks
from shoal.comm.calls import (
    Call,
    check_peer,
    check_root_whole,
    check_still_in,
    check_whole,
    checked_call,
    mismatch,
)
from shoal.comm.group import CPU, NO_PROGRESS_LIMIT_S
from shoal.comm.reduction import Op
from shoal.comm.rendezvous import JOIN_TIMEOUT_S, Store, meet
from shoal.comm.shared_memory.arena import PAGE, Address, Arena, round_up
from shoal.comm.shared_memory.board import Board, Layout
from shoal.comm.shared_memory.engine import Engine, Pending, Roster
from shoal.comm.shared_memory.fences import find_fence
from shoal.comm.shared_memory.mail import MailLane
from shoal.comm.shared_memory.regions import Regions
from shoal.comm.shared_memory.rounds import Rounds
from shoal.comm.shared_memory.sharing import share_arena
from shoal.comm.splitting import chosen_by_all
from shoal.errors import GroupError, JoinError


def shared_memory_works_here() -> bool:
    """Whether this machine can have such groups: Linux, on a processor whose memory order we can keep."""
    return find_fence() is not None and hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")


@final
class SharedMemoryGroup:
    """A group of processes on one machine. Made by `join`, and then by `split`."""

    def __init__(
        self,
        engine: Engine,
        arena: Arena,
        rank: int,
        world_ranks: Sequence[int],
        pids: Sequence[int],
        homes: Sequence[Board] = (),
    ) -> None:
        self._engine = engine
        self._arena = arena
        self._rank, self._size = rank, len(world_ranks)
        boards = [Board(arena, other) for other in range(self._size)]
        self._roster = Roster(boards, world_ranks, pids, rank, homes or boards)
        engine.rosters.append(self._roster)
        engine.watch.add(pids)
        self._regions = Regions(rank)
        self._rounds = Rounds(engine, arena, self._roster, self._regions)
        self._outgoing: dict[int, MailLane] = {}
        self._incoming: dict[int, MailLane] = {}
        self._empty = torch.empty(0, dtype=torch.uint8)
        self._larger: SharedMemoryGroup | None = None
        self._smaller: set[SharedMemoryGroup] = set()
        boards[rank].begin(stacks.listen())
        engine.add(self._rounds)

    @classmethod
    def join(
        cls,
        store: Store,
        rank: int,
        size: int,
        *,
        limit_s: float = NO_PROGRESS_LIMIT_S,
        timeout_s: float = JOIN_TIMEOUT_S,
        facts: Mapping[str, str] | None = None,
    ) -> "SharedMemoryGroup":
        """Meet the others in a store (one of torch's, fresh for this group) and form a group."""
        if not shared_memory_works_here():
            raise JoinError(
                "shared-memory groups need Linux on x86-64, or on ARM with libatomic or libstdc++",
                "Use gloo.",
            )
        cards = meet(store, rank, size, timeout_s, facts)
        strangers = [card for card in cards if not card.shares_machine_with(cards[0])]
        if strangers:
            raise JoinError(
                f"rank 0 is on {cards[0].host}, rank {strangers[0].rank} on {strangers[0].host} "
                "(or in another container): they share no memory",
                "Use gloo or nccl.",
            )
        arena = share_arena(store, rank, cards, timeout_s)
        engine = Engine(limit_s)
        group = cls(engine, arena, rank, range(size), [card.pid for card in cards])
        group.barrier().wait()
        arena.release()
        return group

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return self._size

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> Pending:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        call = checked_call("all_reduce", self._size, buffer.dtype, buffer.numel(), op)
        return self._issue(call, buffer)

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> Pending:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        check_whole("reduce_scatter", self._size, whole, piece)
        call = checked_call("reduce_scatter", self._size, piece.dtype, piece.numel(), op)
        return self._issue(call, piece, whole)

    def all_gather(self, whole: Tensor, piece: Tensor) -> Pending:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        check_whole("all_gather", self._size, whole, piece)
        call = checked_call("all_gather", self._size, piece.dtype, piece.numel())
        return self._issue(call, piece, whole)

    def broadcast(self, buffer: Tensor, root: int = 0) -> Pending:
        """Make `buffer` equal to the root's, on every member."""
        call = checked_call("broadcast", self._size, buffer.dtype, buffer.numel(), None, root)
        return self._issue(call, buffer)

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> Pending:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        call = checked_call("reduce", self._size, buffer.dtype, buffer.numel(), op, root)
        return self._issue(call, buffer)

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> Pending:
        """Fill the root's `whole` with the members' pieces; the others give None."""
        check_root_whole("gather", self._rank, self._size, root, whole, piece)
        call = checked_call("gather", self._size, piece.dtype, piece.numel(), None, root)
        return self._issue(call, piece, whole if self._rank == root else None)

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> Pending:
        """Give member i the i-th piece of the root's `whole`; the others give None."""
        check_root_whole("scatter", self._rank, self._size, root, whole, piece)
        call = checked_call("scatter", self._size, piece.dtype, piece.numel(), None, root)
        return self._issue(call, piece, whole if self._rank == root else None)

    def _issue(self, call: Call, piece: Tensor, whole: Tensor | None = None) -> Pending:
        if not piece.is_cpu:
            raise GroupError(
                f"{call.operation}: a shared-memory group cannot reach {piece.device}", "Use nccl."
            )
        return self._rounds.issue(call, piece, whole)

    def send(self, tensor: Tensor, to: int) -> Pending:
        """Send to one member. `wait()` may return before the other has received."""
        check_peer("send", self._rank, self._size, to)
        check_still_in("send", self._rounds.left)
        if to not in self._outgoing:
            self._outgoing[to] = MailLane(self._engine, self._arena, self._roster, to, outgoing=True)
        return self._outgoing[to].issue(
            checked_call("message", self._size, tensor.dtype, tensor.numel()), tensor
        )

    def recv(self, tensor: Tensor, sender: int) -> Pending:
        """Receive from one member what it sent: as many elements, of the same dtype."""
        check_peer("recv", self._rank, self._size, sender)
        check_still_in("recv", self._rounds.left)
        if sender not in self._incoming:
            self._incoming[sender] = MailLane(self._engine, self._arena, self._roster, sender, outgoing=False)
        return self._incoming[sender].issue(
            checked_call("message", self._size, tensor.dtype, tensor.numel()), tensor
        )

    def barrier(self) -> Pending:
        """Wait until every member has called it."""
        return self._rounds.issue(Call("barrier"), self._empty)

    def _tell_all(self, numbers: Sequence[int]) -> list[list[int]]:
        """Everyone's numbers, of which all give equally many."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        table = torch.empty(self._size, len(numbers), dtype=torch.int64)
        self.all_gather(table, mine).wait()
        return table.tolist()

    def _open_everywhere(self, arena: Arena | None, maker: int) -> Arena:
        """The arena that member `maker` has made, on all members that look to that maker."""
        addresses = self._tell_all(arena.address if arena else (0, 0, 0, 0))
        if arena is None:
            arena = Arena.open(Address(*addresses[maker]))
        self.barrier().wait()
        arena.release()
        return arena

    def split(self, ranks: Sequence[int]) -> "SharedMemoryGroup":
        """The smaller group of these `ranks`; all members call, each naming the group it goes to."""
        chosen = chosen_by_all(self, ranks)
        maker = chosen[0]
        arena = Arena.create(Layout(len(chosen)).num_bytes) if self._rank == maker else None
        arena = self._open_everywhere(arena, maker)
        world_ranks = [self._roster.world_ranks[rank] for rank in chosen]
        pids = [self._roster.pids[rank] for rank in chosen]
        homes = [self._roster.homes[rank] for rank in chosen]
        group = SharedMemoryGroup(self._engine, arena, chosen.index(self._rank), world_ranks, pids, homes)
        group._larger = self
        self._smaller.add(group)
        # Boards must be filled in before anyone waits for anyone.
        self.barrier().wait()
        return group

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """Memory that all members see and reduce where it lies. It lives as long as the group."""
        if device != CPU:
            raise GroupError(f"empty: a shared-memory group has no memory on {device}")
        call = checked_call("empty", self._size, dtype, numel)
        lengths = self._tell_all([numel, dtype.itemsize])
        if any(row != lengths[self._rank] for row in lengths):
            names = self._roster.world_ranks
            raise mismatch(
                self._rounds.sequence,
                {names[rank]: f"empty({row[0]} × {row[1]} bytes)" for rank, row in enumerate(lengths)},
            )
        stride = round_up(max(1, call.numel * dtype.itemsize), PAGE)
        arena = Arena.create(self._size * stride) if self._rank == 0 else None
        memory = self._regions.add(self._open_everywhere(arena, 0), stride)
        # The owner touches its pages first, so that they lie near its processor.
        memory.zero_()
        self.barrier().wait()
        return memory[: numel * dtype.itemsize].view(dtype)

    def beat(self, busy_s: float = 0.0) -> None:
        """Say that this member makes progress, though it calls nothing, and may be busy for so long."""
        self._roster.homes[self._rank].note_progress(time.monotonic_ns() + int(1e9 * busy_s))

    def fail(self, error: BaseException) -> None:
        """Tell the others, in every group of this worker, that it ends with an error."""
        self._engine.fail(error)

    def close(self) -> None:
        """Leave, also all groups split off: whoever still waits for this member gets an error that says so."""
        for smaller in tuple(self._smaller):
            smaller.close()
        if self._larger is not None:
            self._larger._smaller.discard(self)
        self._rounds.left = True
        self._roster.boards[self._rank].leave()
        for lane in (self._rounds, *self._outgoing.values(), *self._incoming.values()):
            self._engine.remove(lane)
        if self._roster in self._engine.rosters:
            self._engine.rosters.remove(self._roster)
        self._regions.clear()
        if not self._engine.rosters:
            self._engine.close()
