"""What torch's groups lack: mismatches are found, members that are gone are named, waits end.

Before a collective the members exchange headers (operation, dtype, number of elements, …) over connections of their own
(`headers.py`); the data moves once all headers agree. A message has its header in front. A long wait looks for the
member that is missing, and why (`presence.py`).

No thread drives collectives: the data of a collective starts when its member next calls the group or waits.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.blocking import BlockingCall, BlockingThread
from shoal.comm.group import ANYONE, Group
from shoal.comm.liveness.limits import Patience, check_busy, limit_of
from shoal.comm.over_torch.checker import GIVE_WAY_S, CheckedCollective, Checker, Collectives, Look, Made
from shoal.comm.over_torch.group import TorchGroup
from shoal.comm.over_torch.headers import Headers
from shoal.comm.over_torch.presence import ENTERING, FROM_ANYONE, MESSAGE, Presence
from shoal.comm.rendezvous.meet import meet
from shoal.comm.rendezvous.tagged_store import TaggedStore, tagged
from shoal.comm.signature import Signature, decode, encode, message_mismatch
from shoal.errors import GroupError

HEADER = Signature("message", torch.int64, 3)
HEADER_TAG = 1
FIRST_TAG, NUM_TAGS = 2, 2**20
"""The data of a message has a tag that its header names, so that two threads which receive from one member cannot take
each other's data."""


@final
class _CheckedMessage:
    """A message of a checked group."""

    def __init__(self, checker: Checker, job: BlockingCall, look: Look, sources: Sequence[int] = ()) -> None:
        self._checker, self._job, self._look, self._sources = checker, job, look, sources
        self._patience = Patience()

    def wait(self) -> None:

        def block(seconds: float) -> None:
            self._job.finished.wait(seconds if not self._checker.num_pending() else GIVE_WAY_S)

        if not self._job.finished.is_set() or self._job.error is not None:
            self._checker.wait(self._job.over, block, self._look)

    def done(self) -> bool:
        return self._checker.ask(self._job.over, self._look, self._patience)

    @property
    def source(self) -> int:
        return self._sources[0] if self._sources else ANYONE


@final
class _CheckedMail:
    """All messages of one member of one group, carried by a torch group."""

    def __init__(self, checker: Checker, carrier: TorchGroup, name: str, world_ranks: Sequence[int]) -> None:
        self._checker, self._carrier = checker, carrier
        self._name, self._world_ranks = name, world_ranks
        self._own_name = world_ranks[carrier.rank]
        self._threads: dict[tuple[int, bool], BlockingThread] = {}
        self._num_sent: Counter[int] = Counter()

    def send(self, call: Signature, tensor: Tensor, to: int) -> _CheckedMessage:
        look = self._look_for(to, f"recv from rank {self._own_name}")
        self._num_sent[to] += 1
        tag = FIRST_TAG + self._num_sent[to] % NUM_TAGS
        header = torch.tensor([encode(call), call.numel, tag])
        with self._checker.naming(look):
            works = [self._carrier.issue_send(HEADER, header, to, HEADER_TAG)]
            if call.numel:
                works.append(self._carrier.issue_send(call, tensor, to, tag))

        def work() -> None:
            for each in works:
                each.wait()

        return _CheckedMessage(self._checker, self._thread(to, outgoing=True).add(work), look)

    def recv(self, call: Signature, tensor: Tensor, sender: int) -> _CheckedMessage:
        sources = [] if sender == ANYONE else [sender]

        def work() -> None:
            header = torch.empty(3, dtype=torch.int64)
            asked = self._carrier.issue_recv(HEADER, header, sender, HEADER_TAG)
            asked.wait()
            sources.append(asked.source)
            code, numel, tag = header.tolist()
            sent = decode(code, numel)
            if sent != call:
                raise message_mismatch(self._world_ranks[asked.source], self._own_name, sent, call)
            if call.numel:
                self._carrier.issue_recv(call, tensor, asked.source, tag).wait()

        look = self._look_for(sender, f"send to rank {self._own_name}")
        job = self._thread(sender, outgoing=False).add(work)
        return _CheckedMessage(self._checker, job, look, sources)

    def _thread(self, peer: int, outgoing: bool) -> BlockingThread:
        if (peer, outgoing) not in self._threads:
            mine, theirs = self._carrier.rank, "any" if peer == ANYONE else peer
            arrow = f"{mine} → {theirs}" if outgoing else f"{theirs} → {mine}"
            self._threads[peer, outgoing] = BlockingThread(f"shoal {self._name} {arrow}")
        return self._threads[peer, outgoing]

    def _look_for(self, peer: int, label: str) -> Look:
        others = [name for name in self._world_ranks if name != self._own_name]
        ranks, sequence = (others, FROM_ANYONE) if peer == ANYONE else ([self._world_ranks[peer]], MESSAGE)

        def look(waited_s: float, broken: bool) -> GroupError | None:
            return self._checker.presence.look(self._name, ranks, sequence, label, waited_s, broken)

        return look

    def close(self) -> None:
        for thread in self._threads.values():
            thread.close()


FOR_EVER = timedelta(days=365)


@final
class CheckedGroup(Group):
    """A torch group that finds mismatches and names members that are gone. Made by `join_torch`, then by `split`."""

    overlaps = True
    devices = TorchGroup.devices

    def __init__(
        self,
        checker: Checker,
        store: TaggedStore,
        rank: int,
        world_ranks: Sequence[int],
        name: str,
        *,
        backend: str,
        host: str,
    ) -> None:
        self.rank, self.size = rank, len(world_ranks)
        self.kind = backend
        self.address = host
        self.checker = checker
        self._store = store
        self._world_ranks, self._name = list(world_ranks), name
        self._num_splits = 0
        self._larger: CheckedGroup | None = None
        self._smaller: set[CheckedGroup] = set()
        with checker.naming(self._look_for_members):
            checker.presence.signs.wait_in(name, 0)
            # A store's connection is busy while torch waits in it, and this thread looks for members meanwhile.
            apart = store.clone()
        apart.set(f"arrivals/{rank}", "")
        # Some may come late; from here on, connecting takes a moment.
        self._connect(lambda: apart.wait([f"arrivals/{other}" for other in range(self.size)], FOR_EVER))

        def connected(name: str, backend: str) -> TorchGroup:
            inside = apart.for_torch(name)
            return self._connect(lambda: TorchGroup(inside, rank, self.size, backend, host))

        self._inner = connected("data", backend)
        meeting = apart.within("headers")
        headers = self._connect(lambda: Headers(meeting, rank, self._world_ranks, host))
        # Two members that send to each other would deadlock on NCCL, where a message blocks the device until the other
        # side asks for it: there messages go through host memory.
        self._carrier = self._inner if backend == "gloo" else connected("messages", "gloo")
        self._mail = _CheckedMail(checker, self._carrier, name, self._world_ranks)
        self._collectives = Collectives(checker, headers, self._inner, name, self._world_ranks)
        checker.groups.append(self._collectives)

    def _connect(self, make: Callable[[], Made]) -> Made:
        """Connections to all members; an error names the member that does not come."""
        return self.checker.make(make, self._look_for_members)

    def _look_for_members(self, waited_s: float, broken: bool) -> GroupError | None:
        return self.checker.presence.look(
            self._name, self._world_ranks, ENTERING, "connecting", waited_s, broken
        )

    def _begin(self, operation: str) -> None:
        self._collectives.check_usable(operation)
        self.checker.presence.signs.beat()

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> CheckedCollective:
        """Send the header to all members; the data follows when all headers agree."""
        self._begin(call.operation)
        return self._collectives.issue(call, piece, whole)

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> _CheckedMessage:
        """Send to one member. `wait()` may return before the other has received."""
        self._begin("send")
        return self._mail.send(call, tensor, to)

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> _CheckedMessage:
        """Receive a message."""
        self._begin("recv")
        return self._mail.recv(call, tensor, sender)

    # Groups within the group.

    def split_off(self, ranks: tuple[int, ...]) -> "CheckedGroup":
        """Make the smaller group of these ranks."""
        self._num_splits += 1
        name = f"{self._name}/{self._num_splits}:{'-'.join(map(str, ranks))}"
        group = CheckedGroup(
            self.checker,
            self._store.within(name),
            ranks.index(self.rank),
            [self._world_ranks[rank] for rank in ranks],
            name,
            backend=self.kind,
            host=self.address,
        )
        group._larger = self
        self._smaller.add(group)
        return group

    def beat(self, busy_s: float = 0.0) -> None:
        """Report progress outside of calls, or work that may take `busy_s`."""
        check_busy(busy_s)
        self.checker.presence.signs.beat(busy_s)

    def check_members(self, label: str, waited_s: float) -> None:
        """Raise when a member will not come."""
        self._collectives.check_usable(label)
        error = self.checker.presence.check(self._world_ranks, label, waited_s)
        if error is not None:
            self.checker.fail(error)
            raise error

    def fail(self, error: BaseException) -> None:
        """Report to all members, in every group of this worker, that it ends with an error."""
        self.checker.fail(error)

    @property
    def closed(self) -> bool:
        """Whether this member has left the group."""
        return self._collectives.closed

    def close(self) -> None:
        """Leave this group and all groups split off from it."""
        for smaller in tuple(self._smaller):
            smaller.close()
        if self._larger is not None:
            self._larger._smaller.discard(self)
        self._collectives.closed = True
        if self._collectives in self.checker.groups:
            self.checker.groups.remove(self._collectives)
        self._mail.close()
        self._collectives.headers.close()
        self._inner.close()
        self._carrier.close()
        if not self.checker.groups:
            self.checker.presence.close()


def join_torch(
    store: Any,
    rank: int,
    size: int,
    *,
    backend: str = "gloo",
    host: str = "127.0.0.1",
    limit_s: float | None = None,
    timeout_s: float | None = None,
    holder: int | None = None,
) -> CheckedGroup:
    """Meet the others in a store (one of torch's, fresh for this group) and form a checked torch group.

    `host` is the address to listen on: this machine's own, where members are on several machines. `holder` is the rank
    in whose process the store lives, if a member holds it.
    """
    limit_s = limit_of(limit_s)
    ours = tagged(store, rank)
    cards = meet(ours, rank, size, limit_of(timeout_s), {"backend": backend})
    presence = Presence(ours.within("presence"), rank, cards, limit_s, holder)
    group = CheckedGroup(Checker(presence), ours, rank, range(size), "world", backend=backend, host=host)
    group.barrier().wait()
    return group
