"""Links between workers: `shaped(group, links)` is a group whose `send` and `recv` take as long as the links say.

Every collective on it is made of those messages (`by_messages.py`; sums around a ring), so the effect of a slow link on
a collective is measured and not computed by a formula. `courier.py` says how a message is delayed, `wire.py` for how
long.

Collectives of a group run in order in a thread of their own: they go on while the caller computes, as they would over
a network. Before each, the members compare their signatures, which are not delayed.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from shoal.comm.blocking import BlockingCall, BlockingThread
from shoal.comm.flat import flat, write_back
from shoal.comm.group import ANYONE, Group
from shoal.comm.links import by_messages
from shoal.comm.links.courier import Clock, Courier, Sleep
from shoal.comm.links.lane import Lane, Receiving, ReceivingFromAnyone, Sending
from shoal.comm.links.measure import link_between
from shoal.comm.links.serialised import Serialised
from shoal.comm.links.wire import Wire
from shoal.comm.rendezvous.meet import Card
from shoal.comm.signature import FILLS_WHOLE, Signature, check_open, mismatch
from shoal.config.conditions import Link
from shoal.errors import ConfigError

LOOK_EVERY_S = 0.1


def shaped(
    group: Group,
    links: Sequence[Link],
    *,
    clock_ns: Clock = time.monotonic_ns,
    sleep: Sleep = time.sleep,
) -> "Shaped":
    """A group that does what `group` does, with these links between its members; all members call it.

    Each pair of workers has a link of its own, in each direction; pairs that no link names are not delayed. A link
    without ends applies to any two that no other link names. Workers must be on one machine, because they read one
    clock. From now on use `group` through this one only.

    >>> from shoal.comm.threads.group import run_threads
    >>> def total(group):
    ...     buffer = torch.ones(2)
    ...     shaped(group, [Link(None, bits_per_s=1e9)]).all_reduce(buffer).wait()
    ...     return buffer.tolist()
    >>> run_threads(2, total)
    [[2.0, 2.0], [2.0, 2.0]]
    """
    _check_one_machine(group)
    if group.shares_memory:
        group = Serialised(group)
    wires = [Wire(link_between(links, group.rank, other)) for other in range(group.size)]
    return Shaped(Courier(group, wires, clock_ns, sleep), range(group.size), "world")


def _check_one_machine(group: Group) -> None:
    digest = hashlib.sha256(Card.of_this_process(group.rank, {}, "").boot.encode()).digest()
    mine = torch.tensor([int.from_bytes(digest[:7], "big")])
    machines = torch.empty(group.size, dtype=torch.int64)
    group.all_gather(machines, mine).wait()
    others = [rank for rank, machine in enumerate(machines.tolist()) if machine != machines[0]]
    if others:
        raise ConfigError(
            f"links need all workers on one machine: rank {others[0]} is on another than rank 0",
            "Leave --link out: there is a real network between machines.",
        )


@final
class ShapedWork:
    """A collective in its group's thread."""

    def __init__(self, group: "Shaped", job: BlockingCall) -> None:
        self._group, self._job = group, job

    def wait(self) -> None:
        """Wait until it is over, or raise what ended it or an earlier one."""
        while not self._job.finished.wait(LOOK_EVERY_S):
            self._group.raise_failure()
        if self._job.error is not None:
            raise self._job.error

    def done(self) -> bool:
        """Whether it is over."""
        return self._job.finished.is_set()


@final
class Shaped(Group):
    """A group with links between its members. Made by `shaped`, and then by `split`."""

    overlaps = True

    def __init__(self, courier: Courier, ranks: Sequence[int], name: str) -> None:
        self._courier, self._ranks, self._name = courier, list(ranks), name
        self.kind, self.devices = courier.group.kind, courier.group.devices
        self.rank, self.size = self._ranks.index(courier.group.rank), len(self._ranks)
        self._messages = Lane(courier, _lane_number(name, "messages"), ranks)
        self._data = Lane(courier, _lane_number(name, "collectives"), ranks)
        self._calls = _lane_number(name, "calls")
        self._thread: BlockingThread | None = None
        self._failure: Exception | None = None
        self._sequence = self._num_splits = 0
        self._closed = False

    # Collectives: first what is called, then the data.

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> ShapedWork:
        """Start a collective in the group's thread."""
        self._begin(call.operation)
        self._sequence += 1
        sequence = self._sequence

        def work() -> None:
            try:
                self._agree(call, sequence)
                self._carry_out(call, piece, whole)
            except Exception as error:
                self._failure = error
                raise

        if self._thread is None:
            self._thread = BlockingThread(f"shoal shaped {self._name}")
        return ShapedWork(self, self._thread.add(work))

    def _carry_out(self, call: Signature, piece: Tensor, whole: Tensor | None) -> None:
        flat_piece, flat_whole = flat(piece), None if whole is None else flat(whole)
        if call.operation == "all_reduce":
            by_messages.all_reduce(self._data, call, flat_piece)
        else:
            rows = flat_piece if flat_whole is None else flat_whole.view(self.size, call.numel)
            by_messages.COLLECTIVES[call.operation](self._data, call, flat_piece, rows)
        if call.operation not in FILLS_WHOLE:
            write_back(piece, flat_piece)
        elif whole is not None and flat_whole is not None:
            write_back(whole, flat_whole)

    def _begin(self, operation: str) -> None:
        self.raise_failure()
        check_open(operation, self._closed)
        self._courier.group.beat()

    def _agree(self, call: Signature, sequence: int) -> None:
        """Compare the signatures of all members before data moves."""
        others = [rank for rank in self._ranks if rank != self._courier.group.rank]
        slots = {rank: self._courier.ask(self._calls, rank) for rank in others}
        for rank in others:
            self._courier.announce(self._calls, call, rank)
        calls = {rank: self._courier.wait(slot).call or call for rank, slot in slots.items()}
        if any(theirs != call for theirs in calls.values()):
            raise mismatch(sequence, calls | {self._courier.group.rank: call})

    def raise_failure(self) -> None:
        """Raise what ended an earlier collective: none can follow it."""
        if self._failure is not None:
            raise self._failure

    # Messages.

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Sending:
        """Send to one member; the wait is for the link, not for the receiver."""
        self._begin("send")
        return self._messages.send(tensor, to)

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> Receiving | ReceivingFromAnyone:
        """Receive a message."""
        self._begin("recv")
        if sender == ANYONE:
            return self._messages.recv_from_anyone(tensor)
        return self._messages.recv(tensor, sender)

    # Groups within the group.

    def split_off(self, ranks: tuple[int, ...]) -> "Shaped":
        """Make the smaller group of these ranks, over the same links."""
        self._num_splits += 1
        name = f"{self._name}/{self._num_splits}:{'-'.join(map(str, ranks))}"
        return Shaped(self._courier, [self._ranks[rank] for rank in ranks], name)

    def beat(self, busy_s: float = 0.0) -> None:
        """Report progress outside of calls, or work that may take `busy_s`."""
        self._courier.group.beat(busy_s)

    def fail(self, error: BaseException) -> None:
        """Report to all members, in every group of this worker, that it ends with an error."""
        self._courier.group.fail(error)

    @property
    def closed(self) -> bool:
        """Whether this member has left the group."""
        return self._closed

    def close(self) -> None:
        """Leave this group; members that still wait for this one get an error."""
        if self._closed:
            return
        self._closed = True
        self._end_thread()
        if self._name == "world":
            self._courier.finish()
            self._courier.group.close()
        else:
            self._report_leaving()

    def finish(self) -> None:
        """Deliver what was sent, and use the links no more; the group below stays open."""
        self._end_thread()
        self._courier.finish()

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def _report_leaving(self) -> None:
        numbers = [_lane_number(self._name, purpose) for purpose in ("messages", "collectives", "calls")]
        for rank in self._ranks:
            if rank != self._courier.group.rank:
                for number in numbers:
                    self._courier.leave(number, rank)


def _lane_number(name: str, purpose: str) -> int:
    """The number of a group's lane for one purpose: equal on all its members, different from all other lanes."""
    digest = hashlib.sha256(f"{name} {purpose}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
