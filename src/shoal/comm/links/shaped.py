"""Links between workers: `shaped(group, links)` is a group whose `send` and `recv` take their time, and nothing else.

Every collective on it is made of those messages (`by_messages.py`; sums by one of our algorithms), so what a slow link
does to a collective is measured and not computed by a formula. `courier.py` says how a message is delayed, `wire.py`
for how long.

Collectives of a group run in order in a thread of their own: they go on while the caller computes, as they would over
a network. Before each, the members compare what they call; those few words are not delayed.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor

from shoal.comm.algorithms import Algorithm, ring
from shoal.comm.calls import (
    Call,
    check_root_whole,
    check_still_in,
    check_whole,
    checked_call,
    mismatch,
)
from shoal.comm.group import CPU, Group
from shoal.comm.links import by_messages
from shoal.comm.links.courier import Clock, Courier, Sleep
from shoal.comm.links.lane import Lane, Receiving, Sending
from shoal.comm.links.measure import link_between
from shoal.comm.links.wire import Wire
from shoal.comm.post import Job, PostThread
from shoal.comm.reduction import Op
from shoal.comm.rendezvous import Card
from shoal.comm.shared_memory.group import SharedMemoryGroup
from shoal.comm.splitting import chosen_by_all
from shoal.config.conditions import Link
from shoal.errors import ConfigError

LOOK_EVERY_S = 0.1


def shaped(
    group: Group,
    links: Sequence[Link],
    algorithm: Algorithm = ring,
    *,
    clock_ns: Clock = time.monotonic_ns,
    sleep: Sleep = time.sleep,
) -> "Shaped":
    """A group that does what `group` does, with these links between its members; all members call it.

    Each pair of workers has a link of its own, in each direction; pairs that no link names are not delayed. A link
    without ends lies between any two that no other link names. `algorithm` carries out all-reduces. Workers must be on
    one machine, for they read one clock. From now on `group` is used through this alone.

    >>> from shoal.comm.threads import run_threads
    >>> def total(group):
    ...     buffer = torch.ones(2)
    ...     shaped(group, [Link(None, bits_per_s=1e9)]).all_reduce(buffer).wait()
    ...     return buffer.tolist()
    >>> run_threads(2, total)
    [[2.0, 2.0], [2.0, 2.0]]
    """
    if isinstance(group, SharedMemoryGroup):
        raise ConfigError(
            "shared memory moves without sending, so no link can slow it", "Use --group gloo, or threads."
        )
    _check_one_machine(group)
    wires = [Wire(link_between(links, group.rank, other)) for other in range(group.size)]
    return Shaped(Courier(group, wires, clock_ns, sleep), range(group.size), "world", algorithm)


def _check_one_machine(group: Group) -> None:
    digest = hashlib.sha256(Card.of_this_process(group.rank, {}, "").boot.encode()).digest()
    mine = torch.tensor([int.from_bytes(digest[:7], "big")])
    machines = torch.empty(group.size, dtype=torch.int64)
    group.all_gather(machines, mine).wait()
    strangers = [rank for rank, machine in enumerate(machines.tolist()) if machine != machines[0]]
    if strangers:
        raise ConfigError(
            f"links are laid between workers of one machine, and rank {strangers[0]} is on another than rank 0",
            "Between machines there is a network already: leave --link out.",
        )


@final
class ShapedWork:
    """A collective in its group's thread."""

    def __init__(self, group: "Shaped", job: Job) -> None:
        self._group, self._job = group, job

    def wait(self) -> None:
        """Wait until it is over, or until it cannot be any more."""
        while not self._job.finished.wait(LOOK_EVERY_S):
            self._group.raise_failure()
        if self._job.error is not None:
            raise self._job.error

    def done(self) -> bool:
        """Whether it is."""
        return self._job.finished.is_set()


@final
class Shaped:
    """A group with links between its members. Made by `shaped`, and then by `split`."""

    overlaps = True
    """Whether work moves on while the caller computes: then there is a point in starting it early."""

    def __init__(self, courier: Courier, ranks: Sequence[int], name: str, algorithm: Algorithm) -> None:
        self._courier, self._ranks, self._name, self._algorithm = courier, list(ranks), name, algorithm
        self._messages = Lane(courier, _lane_number(name, "messages"), ranks)
        self._data = Lane(courier, _lane_number(name, "collectives"), ranks)
        self._calls = _lane_number(name, "calls")
        self._thread: PostThread | None = None
        self._failure: Exception | None = None
        self._sequence = self._num_splits = 0
        self._left = False

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        return self._messages.rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self._ranks)

    # Collectives: first what is called, then the data.

    def _start(self, call: Call, carry_out: Callable[[Lane], None]) -> ShapedWork:
        self._begin(call.operation)
        self._sequence += 1
        sequence = self._sequence

        def work() -> None:
            try:
                self._agree(call, sequence)
                carry_out(self._data)
            except Exception as error:
                self._failure = error
                raise

        if self._thread is None:
            self._thread = PostThread(f"shoal shaped {self._name}")
        return ShapedWork(self, self._thread.add(work))

    def _begin(self, operation: str) -> None:
        self.raise_failure()
        check_still_in(operation, self._left)
        self._courier.group.beat()

    def _agree(self, call: Call, sequence: int) -> None:
        """Compare what all members call, before anything moves."""
        others = [rank for rank in self._ranks if rank != self._courier.group.rank]
        slots = {rank: self._courier.ask(self._calls, rank) for rank in others}
        for rank in others:
            self._courier.tell(self._calls, call, rank)
        calls = {rank: self._courier.wait(slot).call or call for rank, slot in slots.items()}
        if any(theirs != call for theirs in calls.values()):
            raise mismatch(sequence, calls | {self._courier.group.rank: call})

    def raise_failure(self) -> None:
        """Raise what ended an earlier collective: none can follow it."""
        if self._failure is not None:
            raise self._failure

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> ShapedWork:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        call = checked_call("all_reduce", self.size, buffer.dtype, buffer.numel(), op)

        def carry_out(lane: Lane) -> None:
            flat = _flat(buffer)
            by_messages.all_reduce(lane, flat, op, self._algorithm)
            _give_back(buffer, flat)

        return self._start(call, carry_out)

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> ShapedWork:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        check_whole("reduce_scatter", self.size, whole, piece)
        call = checked_call("reduce_scatter", self.size, piece.dtype, piece.numel(), op)

        def carry_out(lane: Lane) -> None:
            mine = _flat(piece)
            by_messages.reduce_scatter(lane, mine, self._rows(whole, piece), op)
            _give_back(piece, mine)

        return self._start(call, carry_out)

    def all_gather(self, whole: Tensor, piece: Tensor) -> ShapedWork:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        check_whole("all_gather", self.size, whole, piece)
        call = checked_call("all_gather", self.size, piece.dtype, piece.numel())

        def carry_out(lane: Lane) -> None:
            rows = self._rows(whole, piece)
            by_messages.all_gather(lane, rows, _flat(piece))
            _give_back(whole, rows)

        return self._start(call, carry_out)

    def broadcast(self, buffer: Tensor, root: int = 0) -> ShapedWork:
        """Make `buffer` equal to the root's, on every member."""
        call = checked_call("broadcast", self.size, buffer.dtype, buffer.numel(), None, root)
        target = buffer.detach()
        return self._start(call, lambda lane: by_messages.broadcast(lane, target, root))

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> ShapedWork:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        call = checked_call("reduce", self.size, buffer.dtype, buffer.numel(), op, root)
        target = buffer.detach()
        return self._start(call, lambda lane: by_messages.reduce(lane, target, root, op))

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> ShapedWork:
        """Fill the root's `whole` with the members' pieces; the others give None."""
        check_root_whole("gather", self.rank, self.size, root, whole, piece)
        call = checked_call("gather", self.size, piece.dtype, piece.numel(), None, root)
        kept = whole if self.rank == root else None

        def carry_out(lane: Lane) -> None:
            rows = None if kept is None else self._rows(kept, piece)
            by_messages.gather(lane, rows, _flat(piece), root)
            if kept is not None and rows is not None:
                _give_back(kept, rows)

        return self._start(call, carry_out)

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> ShapedWork:
        """Give member i the i-th piece of the root's `whole`; the others give None."""
        check_root_whole("scatter", self.rank, self.size, root, whole, piece)
        call = checked_call("scatter", self.size, piece.dtype, piece.numel(), None, root)
        given = whole if self.rank == root else None

        def carry_out(lane: Lane) -> None:
            mine = _flat(piece)
            by_messages.scatter(lane, mine, None if given is None else self._rows(given, piece), root)
            _give_back(piece, mine)

        return self._start(call, carry_out)

    def barrier(self) -> ShapedWork:
        """Wait until every member has called it."""
        return self._start(Call("barrier"), by_messages.barrier)

    def _rows(self, whole: Tensor, piece: Tensor) -> Tensor:
        return _flat(whole).view(self.size, piece.numel())

    # Messages.

    def send(self, tensor: Tensor, to: int) -> Sending:
        """Send to one member; the wait is for the link, not for the receiver."""
        self._begin("send")
        return self._messages.send(tensor, to)

    def recv(self, tensor: Tensor, sender: int) -> Receiving:
        """Receive from one member what it sent: as many elements, of the same dtype."""
        self._begin("recv")
        return self._messages.recv(tensor, sender)

    # Groups within the group.

    def split(self, ranks: Sequence[int]) -> "Shaped":
        """The smaller group of these `ranks`, over the same links; all members call, each naming its group."""
        chosen = chosen_by_all(self, ranks)
        self._num_splits += 1
        name = f"{self._name}/{self._num_splits}:{'-'.join(map(str, chosen))}"
        return Shaped(self._courier, [self._ranks[rank] for rank in chosen], name, self._algorithm)

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """An ordinary tensor: whatever goes over a link is copied."""
        self._start(checked_call("empty", self.size, dtype, numel), lambda lane: None).wait()
        return torch.empty(numel, dtype=dtype, device=device)

    def beat(self, busy_s: float = 0.0) -> None:
        """Say that this member makes progress, though it calls nothing, and may be busy for so long."""
        self._courier.group.beat(busy_s)

    def fail(self, error: BaseException) -> None:
        """Tell the others, in every group of this worker, that it ends with an error."""
        self._courier.group.fail(error)

    def close(self) -> None:
        """Leave: whoever still waits for this member gets an error that says so."""
        if self._left:
            return
        self._left = True
        self._end_thread()
        if self._name == "world":
            self._courier.finish()
            self._courier.group.close()
        else:
            self._say_good_bye()

    def finish(self) -> None:
        """Deliver what was sent, and use the links no more; the group beneath stays as it is."""
        self._end_thread()
        self._courier.finish()

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def _say_good_bye(self) -> None:
        numbers = [_lane_number(self._name, purpose) for purpose in ("messages", "collectives", "calls")]
        for rank in self._ranks:
            if rank != self._courier.group.rank:
                for number in numbers:
                    self._courier.leave(number, rank)


def _lane_number(name: str, purpose: str) -> int:
    """The lane of a group for one purpose: the same number on all its members, another for any other."""
    digest = hashlib.sha256(f"{name} {purpose}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _flat(tensor: Tensor) -> Tensor:
    """The elements in one row: the tensor's own memory where strides allow, else a copy."""
    return tensor.detach().contiguous().view(-1)


def _give_back(tensor: Tensor, flat: Tensor) -> None:
    """Write a copy's elements back to where they came from; nothing where it is no copy."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))
