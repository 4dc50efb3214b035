"""The smallest group: workers are threads of one process. For tests, teaching and debuggers.

The last member to arrive at a collective carries it out for all (`meetings.py`). A breakpoint works in every rank: a
thread that a debugger holds never counts as stuck.
"""

import threading
from collections.abc import Callable
from typing import TypeVar, final

import torch
from torch import Tensor

from shoal.comm.assigned_group import Assignment, assigned
from shoal.comm.group import Finished, Group, Work
from shoal.comm.liveness.judge import Judge, LastWords
from shoal.comm.liveness.limits import Patience, check_busy, limit_of
from shoal.comm.signature import Signature, check_open
from shoal.comm.threads.meetings import Meeting, ThreadMember, World

Result = TypeVar("Result")


@final
class _ThreadWork:
    """A meeting, as one member waits for it."""

    def __init__(self, world: World, rank: int, meeting: Meeting) -> None:
        self._world, self._rank, self._meeting = world, rank, meeting
        self._patience = Patience()

    def wait(self) -> None:
        self._world.wait(self._meeting, self._rank)

    def done(self) -> bool:
        if not self._meeting.over:
            waited_s = self._patience.to_look()
            if waited_s is not None:
                self._world.look(self._meeting, self._rank, waited_s)
        return self._meeting.over

    @property
    def source(self) -> int:
        return self._meeting.source


@final
class ThreadGroup(Group):
    """A group whose members are threads of this process.

    >>> import torch
    >>> first, second = ThreadGroup.world(2)
    >>> a, b = torch.tensor([1.0]), torch.tensor([2.0])
    >>> works = first.all_reduce(a), second.all_reduce(b)
    >>> works[0].wait(); works[1].wait(); a, b
    (tensor([3.]), tensor([3.]))
    """

    kind = "threads"
    maps_memory = True
    sums_along_tree = True
    devices = ("cpu", "cuda")

    def __init__(self, world: World, rank: int) -> None:
        self.rank, self.size = rank, len(world.members)
        self._world, self._member = world, world.members[rank]
        self._sequence = 0

    @classmethod
    def world(cls, size: int, limit_s: float | None = None) -> list["ThreadGroup"]:
        """A new group's members, one for each thread."""
        world = World([ThreadMember(rank) for rank in range(size)], Judge(limit_of(limit_s)))
        return [cls(world, rank) for rank in range(size)]

    def _begin(self, operation: str) -> None:
        if self.rank in self._world.left:
            check_open(operation, True)
        self._member.beat()

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Bring the tensors to the next collective; the last to come carries it out."""
        self._begin(call.operation)
        self._sequence += 1
        meeting = self._world.arrive(self._sequence, self.rank, call, whole, piece)
        return _ThreadWork(self._world, self.rank, meeting)

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Work:
        """Send to one member: the tensor is copied at once."""
        self._begin("send")
        self._world.post(self.rank, to, call, tensor)
        return Finished()

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> _ThreadWork:
        """Receive a message."""
        self._begin("recv")
        return _ThreadWork(self._world, self.rank, self._world.ask(sender, self.rank, call, tensor))

    def split_off(self, ranks: tuple[int, ...]) -> "ThreadGroup":
        """Make the smaller group of these ranks."""
        # All members look the new world up under (call, ranks); the first to look makes it.
        with self._world.changed:
            members = [self._world.members[rank] for rank in ranks]
            world = self._world.children.setdefault(
                (self._sequence, ranks), World(members, self._world.judge)
            )
        return ThreadGroup(world, ranks.index(self.rank))

    def map_all(self, tensor: Tensor) -> list[Tensor]:
        """All members' tensors: threads see them as they are."""
        with self._world.changed:
            shown = self._world.shown.setdefault(self._sequence, {})
            shown[self.rank] = tensor
        self.barrier().wait()
        return [shown[rank] for rank in range(self.size)]

    def map_one(self, numel: int, dtype: torch.dtype) -> Tensor:
        """Rank 0's memory."""
        return self.map_all(torch.empty(numel if self.rank == 0 else 0, dtype=dtype))[0]

    def beat(self, busy_s: float = 0.0) -> None:
        """Report progress outside of calls, or work that may take `busy_s`."""
        check_busy(busy_s)
        self._member.beat(busy_s)

    def check_members(self, label: str, waited_s: float) -> None:
        """Raise when a member will not come."""
        self._world.check_members(self.rank, label, waited_s)

    def fail(self, error: BaseException) -> None:
        """Report to all members, in every group of this thread, that it ends with an error."""
        with self._world.changed:
            self._member.last_words = self._member.last_words or LastWords.of(error, self._member.rank)
            self._world.changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether this member has left the group."""
        return self.rank in self._world.left

    def close(self) -> None:
        """Leave this group and all groups split off from it."""
        self._world.leave(self._member)


def run_threads(
    size: int, work: Callable[[ThreadGroup], Result], limit_s: float | None = None
) -> list[Result]:
    """Run `work(group)` on `size` threads; return their results in rank order, or raise the first failure.

    Inside `work`, `shoal.join()` and a wrapper that is given no group find this one.

    >>> import torch
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
            with assigned(Assignment(group)):
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
