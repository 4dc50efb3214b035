"""Links between workers: `shaped(group, links)` is a group whose `send` and `recv` take as long as the links say.

Every collective on it is made of those messages (`by_messages.py`; sums around a ring), so the effect of a slow link on
a collective is measured and not computed by a formula. `courier.py` says how a message is delayed, and for how long.

Collectives of a group run in order in a thread of their own: they go on while the caller computes, as they would over
a network. Before each, the members compare their signatures, which are not delayed.
"""

import hashlib
import time
from collections.abc import Sequence
from typing import final

from torch import Tensor

from shoal.comm.agree import gather_texts
from shoal.comm.algorithms import flat, write_back
from shoal.comm.blocking import BlockingCall, BlockingThread
from shoal.comm.group import ANYONE, Group
from shoal.comm.links import by_messages
from shoal.comm.links.courier import POLL_S, Clock, Courier, ParcelSlot, Serialised, Sleep, Wire
from shoal.comm.links.measure import link_between
from shoal.comm.liveness.limits import LOOK_EVERY_S
from shoal.comm.rendezvous.meet import Card
from shoal.comm.signature import FILLS_WHOLE, Signature, check_open, mismatch, signature_of
from shoal.config.conditions import Link
from shoal.errors import ConfigError


@final
class _Sending:
    """A message on the wire: over when its last byte has left."""

    def __init__(self, courier: Courier, gone_ns: int) -> None:
        self._courier, self._gone_ns = courier, gone_ns

    def wait(self) -> None:
        self._courier.sleep_until(self._gone_ns)

    def done(self) -> bool:
        return self._courier.is_past(self._gone_ns)


@final
class _Receiving:
    """A message that is to come: over when its last byte has arrived."""

    def __init__(
        self, courier: Courier, slot: ParcelSlot, tensor: Tensor, expected: Signature, source: int
    ) -> None:
        self._courier, self._slot, self._tensor, self._expected = courier, slot, tensor, expected
        self.source = source
        self._over = False

    def wait(self) -> None:
        if self._over:
            return
        parcel = self._courier.wait(self._slot)
        self._courier.sleep_until(parcel.due_ns)
        self._courier.put(parcel, self._slot.sender, self._tensor, self._expected)
        self._over = True

    def done(self) -> bool:
        if not self._over and self._courier.is_here(self._slot):
            self.wait()
        return self._over


@final
class _ReceivingFromAnyone:
    """A message that is to come from any member of a lane: over when the last byte of one has arrived."""

    def __init__(
        self, courier: Courier, lane: int, ranks: Sequence[int], tensor: Tensor, call: Signature
    ) -> None:
        self._courier, self._lane, self._ranks = courier, lane, ranks
        self._tensor, self._call = tensor, call
        self.source = ANYONE

    def wait(self) -> None:
        while not self.done():
            self._courier.sleep(POLL_S)

    def done(self) -> bool:
        if self.source == ANYONE:
            found = self._courier.take_any(self._lane, self._ranks)
            if found is not None:
                sender, parcel = found
                self._courier.put(parcel, sender, self._tensor, self._call)
                self.source = self._ranks.index(sender)
        return self.source != ANYONE


@final
class _Lane:
    """One lane among some of the courier's members: the messenger that algorithms get."""

    def __init__(self, courier: Courier, number: int, ranks: Sequence[int]) -> None:
        self._courier, self._number = courier, number
        self._ranks = list(ranks)
        self.rank, self.size = self._ranks.index(courier.group.rank), len(ranks)

    def send(self, tensor: Tensor, to: int) -> _Sending:
        """Send to one member: the tensor is copied at once, and the wait is for the wire."""
        return _Sending(self._courier, self._courier.send(self._number, tensor, self._ranks[to]))

    def recv(self, tensor: Tensor, sender: int) -> _Receiving | _ReceivingFromAnyone:
        call = signature_of("message", self.size, tensor)
        if sender == ANYONE:
            return _ReceivingFromAnyone(self._courier, self._number, self._ranks, tensor, call)
        slot = self._courier.ask(self._number, self._ranks[sender])
        return _Receiving(self._courier, slot, tensor, call, sender)


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

    >>> import torch
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
    machines = gather_texts(group, Card.of_this_process(group.rank, {}, "").boot)
    others = [rank for rank, machine in enumerate(machines) if machine != machines[0]]
    if others:
        raise ConfigError(
            f"links need all workers on one machine: rank {others[0]} is on another than rank 0",
            "Leave --link out: there is a real network between machines.",
        )


@final
class _ShapedWork:
    """A collective in its group's thread."""

    def __init__(self, group: "Shaped", job: BlockingCall) -> None:
        self._group, self._job = group, job

    def wait(self) -> None:
        while not self._job.finished.wait(LOOK_EVERY_S):
            self._group.raise_failure()
        if self._job.error is not None:
            raise self._job.error

    def done(self) -> bool:
        return self._job.finished.is_set()


@final
class Shaped(Group):
    """A group with links between its members. Made by `shaped`, and then by `split`."""

    overlaps = True

    def __init__(self, courier: Courier, ranks: Sequence[int], name: str) -> None:
        self._courier, self._ranks, self._name = courier, list(ranks), name
        self.kind, self.devices = courier.group.kind, courier.group.devices
        self.rank, self.size = self._ranks.index(courier.group.rank), len(self._ranks)
        self._messages = _Lane(courier, _lane_number(name, "messages"), ranks)
        self._data = _Lane(courier, _lane_number(name, "collectives"), ranks)
        self._calls = _lane_number(name, "calls")
        self._thread: BlockingThread | None = None
        self._failure: Exception | None = None
        self._sequence = self._num_splits = 0
        self._closed = False

    # Collectives: first what is called, then the data.

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> _ShapedWork:
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
        return _ShapedWork(self, self._thread.add(work))

    def _carry_out(self, call: Signature, piece: Tensor, whole: Tensor | None) -> None:
        flat_piece, flat_whole = flat(piece), None if whole is None else flat(whole)
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

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> _Sending:
        """Send to one member; the wait is for the link, not for the receiver."""
        self._begin("send")
        return self._messages.send(tensor, to)

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> _Receiving | _ReceivingFromAnyone:
        """Receive a message."""
        self._begin("recv")
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
            for rank in self._ranks:
                if rank != self._courier.group.rank:
                    for purpose in ("messages", "collectives", "calls"):
                        self._courier.leave(_lane_number(self._name, purpose), rank)

    def finish(self) -> None:
        """Deliver what was sent, and use the links no more; the group below stays open."""
        self._end_thread()
        self._courier.finish()

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._thread.close()
            self._thread = None


def _lane_number(name: str, purpose: str) -> int:
    """The number of a group's lane for one purpose: equal on all its members, different from all other lanes."""
    digest = hashlib.sha256(f"{name} {purpose}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
