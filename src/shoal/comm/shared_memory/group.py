"""Workers on one machine, through memory they all see: communication at the speed of memory.

- `all_reduce` of a tensor from `empty()`: each member reduces its own slice in all members' memory, so that every byte
  is read once and written once. Any other tensor goes through slots that fit the cache.
- Nothing is left behind, whatever dies when (`arena.py`). A member that dies, is stopped, or makes no progress ends
  every wait for it (`progress.py`). Members that call different things get an error (`rounds.py`).

Not safe: calls from several threads at once. A death between two members' writes leaves buffers half reduced; discard
them after a `MemberError`.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.group import ANYONE, Group, Work
from shoal.comm.liveness.judge import BROKEN_FOR_S, Facts, verdict
from shoal.comm.liveness.limits import check_busy, limit_of
from shoal.comm.liveness.watch import ProcessWatch, answer_stack_requests
from shoal.comm.rendezvous.meet import Card, meet
from shoal.comm.rendezvous.store import stored
from shoal.comm.rendezvous.tagged_store import TaggedStore, tagged
from shoal.comm.shared_memory.arena import PAGE, Address, Arena, ArenaLayout, Board, find_fence, round_up
from shoal.comm.shared_memory.direct import Regions
from shoal.comm.shared_memory.mail import Mail, PendingMessage
from shoal.comm.shared_memory.progress import Pending, ProgressEngine, Roster
from shoal.comm.shared_memory.rounds import Rounds
from shoal.comm.signature import Signature, check_open
from shoal.errors import JoinError, JoinTimeoutError, MemberError


def shared_memory_works_here() -> bool:
    """Whether this machine supports such groups: Linux, on a processor whose memory order we can keep."""
    return find_fence() is not None and hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")


@final
class SharedMemoryGroup(Group):
    """A group of processes on one machine. Made by `join`, and then by `split`."""

    kind = "shm"
    shares_memory = True
    maps_memory = True
    sums_along_tree = True

    def __init__(
        self,
        progress: ProgressEngine,
        arena: Arena,
        rank: int,
        world_ranks: Sequence[int],
        pids: Sequence[int],
        homes: Sequence[Board] = (),
    ) -> None:
        self._progress = progress
        self.rank, self.size = rank, len(world_ranks)
        boards = [Board(arena, other) for other in range(self.size)]
        self._roster = Roster(boards, world_ranks, pids, rank, homes or boards)
        progress.rosters.append(self._roster)
        progress.watch.add(pids)
        self._regions = Regions(rank)
        self._rounds = Rounds(progress, arena, self._roster, self._regions)
        self._mail = Mail(progress, arena, self._roster)
        self._larger: SharedMemoryGroup | None = None
        self._smaller: set[SharedMemoryGroup] = set()
        boards[rank].begin(answer_stack_requests(os.getpid()))

    @classmethod
    def join(
        cls,
        store: Any,
        rank: int,
        size: int,
        *,
        limit_s: float | None = None,
        timeout_s: float | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> "SharedMemoryGroup":
        """Meet the others in a store (one of torch's, fresh for this group) and form a group."""
        if not shared_memory_works_here():
            raise JoinError(
                "shared-memory groups need Linux on x86-64, or on ARM with libatomic or libstdc++",
                "Use gloo.",
            )
        limit_s, timeout_s = limit_of(limit_s), limit_of(timeout_s)
        ours = tagged(store, rank)
        cards = meet(ours, rank, size, timeout_s, facts)
        elsewhere = [card for card in cards if not card.shares_machine_with(cards[0])]
        if elsewhere:
            raise JoinError(
                f"rank 0 is on {cards[0].host}, rank {elsewhere[0].rank} on {elsewhere[0].host} "
                "(or in another container): they share no memory",
                "Use gloo or nccl.",
            )
        arena = share_arena(ours, rank, cards, timeout_s)
        progress = ProgressEngine(limit_s, size)
        group = cls(progress, arena, rank, range(size), [card.pid for card in cards])
        group.barrier().wait()
        arena.release()
        return group

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Start a collective: post what can be posted at once."""
        return self._rounds.issue(call, piece, whole)

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Pending:
        """Send to one member. `wait()` may return before the other has received."""
        check_open("send", self._rounds.closed)
        return self._mail.outgoing(to).issue(call, tensor)

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> PendingMessage:
        """Receive a message."""
        check_open("recv", self._rounds.closed)
        if sender == ANYONE:
            return self._mail.from_anyone.issue(call, tensor)
        return self._mail.incoming(sender).issue(call, tensor)

    def _open_everywhere(self, arena: Arena | None, maker: int) -> Arena:
        """The arena that member `maker` has made, on all members that name that maker."""
        mine = torch.tensor(arena.address if arena else (0, 0, 0, 0), dtype=torch.int64)
        addresses = torch.empty(self.size, 4, dtype=torch.int64)
        self.all_gather(addresses, mine).wait()
        if arena is None:
            arena = Arena.open(Address(*addresses[maker].tolist()))
        self.barrier().wait()
        arena.release()
        return arena

    def split_off(self, ranks: tuple[int, ...]) -> "SharedMemoryGroup":
        """Make the smaller group of these ranks."""
        maker = ranks[0]
        arena = Arena.create(ArenaLayout(len(ranks)).num_bytes) if self.rank == maker else None
        group = self._smaller_group(ranks, self._open_everywhere(arena, maker))
        # Boards must be filled in before any member waits for another.
        self.barrier().wait()
        return group

    def _smaller_group(self, ranks: Sequence[int], arena: Arena) -> "SharedMemoryGroup":
        world_ranks = [self._roster.world_ranks[rank] for rank in ranks]
        pids = [self._roster.pids[rank] for rank in ranks]
        homes = [self._roster.homes[rank] for rank in ranks]
        group = SharedMemoryGroup(self._progress, arena, ranks.index(self.rank), world_ranks, pids, homes)
        group._larger = self
        self._smaller.add(group)
        return group

    def tolerate_deaths(self, ranks: Sequence[int]) -> None:
        """Go on receiving from `ANYONE` when one of these members dies."""
        self._roster.may_die |= set(ranks)

    def without(self, ranks: Sequence[int]) -> "SharedMemoryGroup":
        """The group of the living. No collective of this group works any more: the first sends the others its arena."""
        first, *others = left = [rank for rank in range(self.size) if rank not in ranks]
        if self.rank == first:
            arena = Arena.create(ArenaLayout(len(left)).num_bytes)
            for rank in others:
                self.send(torch.tensor(arena.address, dtype=torch.int64), rank).wait()
        else:
            address = torch.empty(4, dtype=torch.int64)
            self.recv(address, first).wait()
            arena = Arena.open(Address(*address.tolist()))
        group = self._smaller_group(left, arena)
        # Who could go on without a member can do so again, when the next one dies.
        group.tolerate_deaths([new for new, old in enumerate(left) if old in self._roster.may_die])
        group.barrier().wait()
        arena.release()
        return group

    def allocate(self, numel: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory that all members see and reduce in place. It lives as long as the group."""
        stride = round_up(max(1, numel * dtype.itemsize), PAGE)
        arena = Arena.create(self.size * stride) if self.rank == 0 else None
        memory = self._regions.add(self._open_everywhere(arena, 0), stride)
        # The owner touches its pages first, so that they are placed near its processor.
        memory.zero_()
        self.barrier().wait()
        return memory[: numel * dtype.itemsize].view(dtype)

    def map_all(self, tensor: Tensor) -> list[Tensor]:
        """All members' tensors from one `empty`: the same place in every member's part."""
        place = self._regions.place_of(tensor)
        return [self._regions.view(place, rank, tensor.numel(), tensor.dtype) for rank in range(self.size)]

    def map_one(self, numel: int, dtype: torch.dtype) -> Tensor:
        """A mapping of its own. It lives as long as a tensor shows it."""
        num_bytes = numel * dtype.itemsize
        arena = Arena.create(max(1, num_bytes)) if self.rank == 0 else None
        return self._open_everywhere(arena, 0).memory[:num_bytes].view(dtype)

    def beat(self, busy_s: float = 0.0) -> None:
        """Report progress outside of calls, or work that may take `busy_s`."""
        check_busy(busy_s)
        home = self._roster.homes[self.rank]
        home.words[home.alive] = time.monotonic_ns() + int(1e9 * busy_s)

    def check_members(self, label: str, waited_s: float) -> None:
        """Raise when a member will not come."""
        self._progress.check_members(self._roster, label, waited_s)

    def fail(self, error: BaseException) -> None:
        """Report to all members, in every group of this worker, that it ends with an error."""
        self._progress.fail(error)

    @property
    def closed(self) -> bool:
        """Whether this member has left the group."""
        return self._rounds.closed

    def close(self) -> None:
        """Leave this group and all groups split off from it."""
        for smaller in tuple(self._smaller):
            smaller.close()
        if self._larger is not None:
            self._larger._smaller.discard(self)
        self._rounds.closed = True
        self._roster.boards[self.rank].end(None, self._roster.world_ranks[self.rank])
        self._progress.remove(self._rounds)
        self._mail.close()
        if self._roster in self._progress.rosters:
            self._progress.rosters.remove(self._roster)
        self._regions.clear()
        if not self._progress.rosters:
            self._progress.close()


def share_arena(store: TaggedStore, rank: int, cards: Sequence[Card], timeout_s: float) -> Arena:
    """The arena of a new group: rank 0 makes it and publishes its address, the others open it."""
    if rank == 0:
        arena = Arena.create(ArenaLayout(len(cards)).num_bytes)
        store.set("arena", json.dumps(arena.address))
        return arena
    watch, pid = ProcessWatch(), cards[0].pid
    watch.add([pid])
    facts = Facts(0, "sharing the group's memory", 0.0, pid=pid)
    deadline = time.monotonic() + timeout_s
    try:
        while (address := store.read("arena", 0)) is None:
            error = verdict(facts._replace(dead=watch.dead(pid), stopped_s=watch.stopped_s(pid)), timeout_s)
            if error is not None:
                raise error
            if time.monotonic() > deadline:
                raise JoinTimeoutError(f"rank 0 has not shared the group's memory within {timeout_s:g} s")
            time.sleep(0.005)
        return Arena.open(Address(*stored(address, int, int, int, int)))
    except MemberError:
        raise
    except (RuntimeError, JoinError) as error:
        # The store may end with rank 0, and its memory does.
        if _dies_soon(watch, pid):
            raise verdict(facts._replace(dead=True), timeout_s) or error from error
        raise
    finally:
        watch.close()


def _dies_soon(watch: ProcessWatch, pid: int) -> bool:
    """Whether a process ends within a moment: its connections break a little before that."""
    deadline = time.monotonic() + BROKEN_FOR_S
    while not watch.dead(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
