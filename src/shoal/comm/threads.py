"""The smallest group: workers are threads of one process. For tests, teaching and debuggers.

Whoever arrives last at a collective carries it out for all (`meetings.py`). A breakpoint works in every
rank: a thread in a debugger is never taken for stuck.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, final

import torch
from torch import Tensor

from shoal.comm.calls import (
    check_peer,
    check_root_whole,
    check_still_in,
    check_whole,
    checked_call,
)
from shoal.comm.group import CPU, NO_PROGRESS_LIMIT_S
from shoal.comm.meetings import Meeting, Member, World
from shoal.comm.patience import Patience
from shoal.comm.reduction import Op
from shoal.comm.splitting import chosen_by_all

Result = TypeVar("Result")


@final
class ThreadWork:
    """A meeting, as one member waits for it."""

    def __init__(self, world: World, rank: int, meeting: Meeting | None) -> None:
        self._world = world
        self._rank = rank
        self._meeting = meeting
        self._patience = Patience()

    def wait(self) -> None:
        """Wait until the collective has been carried out."""
        if self._meeting is not None:
            self._world.wait(self._meeting, self._rank)

    def done(self) -> bool:
        """Whether it has been."""
        if self._meeting is None or self._meeting.over:
            return True
        waited_s = self._patience.to_look()
        if waited_s is not None:
            self._world.look(self._meeting, self._rank, waited_s)
        return self._meeting.over


@final
class ThreadGroup:
    """A group whose members are threads of this process.

    >>> first, second = ThreadGroup.world(2)
    >>> a, b = torch.tensor([1.0]), torch.tensor([2.0])
    >>> works = first.all_reduce(a), second.all_reduce(b)
    >>> works[0].wait(); works[1].wait(); a, b
    (tensor([3.]), tensor([3.]))
    """

    def __init__(self, world: World, rank: int) -> None:
        self._world = world
        self._rank = rank
        self._sequence = 0

    @classmethod
    def world(cls, size: int, limit_s: float = NO_PROGRESS_LIMIT_S) -> list["ThreadGroup"]:
        """A new group's members, to be handed to one thread each."""
        world = World([Member(rank) for rank in range(size)], limit_s)
        return [cls(world, rank) for rank in range(size)]

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self._world.members)

    def _meet(
        self,
        operation: str,
        whole: Tensor | None,
        piece: Tensor,
        op: Op | None = None,
        root: int | None = None,
    ) -> ThreadWork:
        call = checked_call(operation, self.size, piece.dtype, piece.numel(), op, root)
        self._check_still_in(operation)
        self.beat()
        self._sequence += 1
        whole = None if whole is None else whole.detach()
        meeting = self._world.arrive(self._sequence, self.rank, call, whole, piece.detach())
        return ThreadWork(self._world, self.rank, meeting)

    def _check_still_in(self, operation: str) -> None:
        check_still_in(operation, self.rank in self._world.left)

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> ThreadWork:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        return self._meet("all_reduce", None, buffer, op)

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> ThreadWork:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        check_whole("reduce_scatter", self.size, whole, piece)
        return self._meet("reduce_scatter", whole, piece, op)

    def all_gather(self, whole: Tensor, piece: Tensor) -> ThreadWork:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        check_whole("all_gather", self.size, whole, piece)
        return self._meet("all_gather", whole, piece)

    def broadcast(self, buffer: Tensor, root: int = 0) -> ThreadWork:
        """Make `buffer` equal to the root's, on every member."""
        return self._meet("broadcast", None, buffer, root=root)

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> ThreadWork:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        return self._meet("reduce", None, buffer, op, root)

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> ThreadWork:
        """Fill the root's `whole` with the members' pieces; the others give None."""
        check_root_whole("gather", self.rank, self.size, root, whole, piece)
        return self._meet("gather", whole, piece, root=root)

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> ThreadWork:
        """Give member i the i-th piece of the root's `whole`; the others give None."""
        check_root_whole("scatter", self.rank, self.size, root, whole, piece)
        return self._meet("scatter", whole, piece, root=root)

    def send(self, tensor: Tensor, to: int) -> ThreadWork:
        """Send to one member: the tensor is copied at once."""
        check_peer("send", self.rank, self.size, to)
        self._check_still_in("send")
        self.beat()
        call = checked_call("message", self.size, tensor.dtype, tensor.numel())
        self._world.post(self.rank, to, call, tensor.detach())
        return ThreadWork(self._world, self.rank, None)

    def recv(self, tensor: Tensor, sender: int) -> ThreadWork:
        """Receive from one member what it sent: as many elements, of the same dtype."""
        check_peer("recv", self.rank, self.size, sender)
        self._check_still_in("recv")
        self.beat()
        call = checked_call("message", self.size, tensor.dtype, tensor.numel())
        return ThreadWork(self._world, self.rank, self._world.ask(sender, self.rank, call, tensor.detach()))

    def barrier(self) -> ThreadWork:
        """Wait until every member has called it."""
        return self._meet("barrier", None, torch.empty(0))

    def split(self, ranks: Sequence[int]) -> "ThreadGroup":
        """The smaller group of these `ranks`; all members call, each naming the group it goes to."""
        chosen = chosen_by_all(self, ranks)
        # Everyone looks the new world up under (call, ranks); the first to look makes it.
        with self._world.changed:
            key = (self._sequence, chosen)
            members = [self._world.members[rank] for rank in chosen]
            world = self._world.children.setdefault(key, World(members, self._world.limit_s))
        return ThreadGroup(world, chosen.index(self.rank))

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """An ordinary tensor: threads see each other's memory anyway."""
        call = checked_call("empty", self.size, dtype, numel)
        self._sequence += 1
        ThreadWork(
            self._world,
            self.rank,
            self._world.arrive(self._sequence, self.rank, call, None, torch.empty(0, dtype=dtype)),
        ).wait()
        return torch.empty(numel, dtype=dtype, device=device)

    def beat(self, busy_s: float = 0.0) -> None:
        """Say that this member makes progress, though it calls nothing, and may be busy for so long."""
        self._world.members[self.rank].beat(busy_s)

    def fail(self, error: BaseException) -> None:
        """Tell the others, in every group of this thread, that it ended with an error."""
        with self._world.changed:
            self._world.members[self.rank].error = error
            self._world.changed.notify_all()

    def close(self) -> None:
        """Leave, also all groups split off: whoever still waits for this member gets an error that says so."""
        self._world.leave(self._world.members[self.rank])


def run_threads(
    size: int, work: Callable[[ThreadGroup], Result], limit_s: float = NO_PROGRESS_LIMIT_S
) -> list[Result]:
    """Run `work(group)` on `size` threads and give their results in rank order; raise the first failure.

    >>> def total(group: ThreadGroup) -> float:
    ...     value = torch.tensor(float(group.rank))
    ...     group.all_reduce(value).wait()
    ...     return value.item()
    >>> run_threads(3, total)
    [3.0, 3.0, 3.0]
    """
    results: dict[int, Result] = {}
    failures: list[BaseException] = []

    def run(group: ThreadGroup) -> None:
        try:
            group.beat()
            results[group.rank] = work(group)
        except BaseException as error:
            failures.append(error)
            group.fail(error)
        finally:
            group.close()

    groups = ThreadGroup.world(size, limit_s)
    threads = [threading.Thread(target=run, args=(group,), name=f"rank {group.rank}") for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[rank] for rank in range(size)]
