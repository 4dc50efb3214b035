"""What torch's groups lack: calls that must match, members that are named, waits that end.

Before a collective the members exchange headers (name, dtype, number of elements …) over connections of
their own (`headers.py`); the data moves once all headers agree. A message carries its header in front.
Whoever waits for long asks who is missing, and why (`presence.py`).

No thread drives collectives: the data of a collective starts when its member next calls the group or waits.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.comm.calls import (
    Call,
    check_peer,
    check_root_whole,
    check_still_in,
    check_whole,
    checked_call,
    decode,
    encode,
    mismatch,
)
from shoal.comm.group import CPU, NO_PROGRESS_LIMIT_S
from shoal.comm.over_torch.checked_mail import CheckedMail, CheckedMessage
from shoal.comm.over_torch.checker import Checker, Item, Look, MissedError
from shoal.comm.over_torch.group import TorchGroup, TorchWork
from shoal.comm.over_torch.headers import Header, Headers, HungUpError
from shoal.comm.over_torch.presence import ENTERING, Presence
from shoal.comm.patience import Patience
from shoal.comm.reduction import Op
from shoal.comm.rendezvous import JOIN_TIMEOUT_S, meet
from shoal.comm.splitting import chosen_by_all
from shoal.errors import GroupError

Made = TypeVar("Made")


@final
class CheckedWork:
    """A collective of a checked group."""

    def __init__(self, group: "Checked", item: Item) -> None:
        self._group, self._item, self._patience = group, item, Patience()

    def wait(self) -> None:
        """Wait until the data has moved, or somebody is missing for good."""
        if not self._item.over:
            self._group.wait(self._item)

    def done(self) -> bool:
        """Whether `wait` would return at once. Asking moves the work forward."""
        return self._item.over or self._group.ask(self._item, self._patience)


@final
class Checked:
    """A torch group whose mistakes and losses are named. Made by `join_torch`, and then by `split`."""

    overlaps = True
    """Whether work moves on while the caller computes: then there is a point in starting it early."""

    def __init__(
        self,
        checker: Checker,
        store: Any,
        rank: int,
        world_ranks: Sequence[int],
        name: str,
        *,
        backend: str,
        host: str,
    ) -> None:
        self.checker = checker
        self.queue: deque[Item] = deque()
        self._store, self._host = store, host
        self._world_ranks, self._name = list(world_ranks), name
        self._sequence = self._num_splits = 0
        self._left = False
        self._larger: Checked | None = None
        self._smaller: set[Checked] = set()
        with checker.naming(self._look_for_members):
            checker.presence.signs.enter(name)
            # A store's connection is taken while torch waits in it; we want to look around meanwhile.
            apart = store.clone()
        size = len(self._world_ranks)

        def connected(apart: Any, name: str, backend: str) -> TorchGroup:
            inside = dist.PrefixStore(name, apart)
            return self._connect(lambda: TorchGroup(inside, rank, size, backend, host))

        self._inner = connected(apart, "data", backend)
        meeting = dist.PrefixStore("headers", apart)
        self._headers = self._connect(lambda: Headers(meeting, rank, self._world_ranks, host))
        # Two members that send to each other would wait for ever on NCCL, where a message blocks the device until the
        # other side asks for it: there messages go through host memory.
        self._carrier = self._inner if backend == "gloo" else connected(apart, "messages", "gloo")
        self._mail = CheckedMail(checker, self._carrier, name, self._world_ranks)
        checker.groups.append(self)

    def _connect(self, make: Callable[[], Made]) -> Made:
        """Connections to all members; whoever never comes is named."""
        return self.checker.make(make, self._look_for_members)

    def _look_for_members(self, waited_s: float, broken: bool) -> GroupError | None:
        return self.checker.presence.look(
            self._name, self._world_ranks, ENTERING, "connecting", waited_s, broken
        )

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        return self._inner.rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return self._inner.size

    def _begin(self, operation: str) -> None:
        self._check_usable(operation)
        self.checker.presence.signs.beat()

    def _check_usable(self, operation: str) -> None:
        if self.checker.error is not None:
            raise self.checker.error
        check_still_in(operation, self._left)

    # Collectives: headers first, then data.

    def _issue(self, call: Call, launch: Callable[[], TorchWork]) -> CheckedWork:
        self._begin(call.operation)
        self._sequence += 1
        item = Item(call, self._sequence, launch)
        self._headers.tell(Header(encode(call), call.numel))
        self.queue.append(item)
        return CheckedWork(self, item)

    def advance(self) -> None:
        """Start the data of collectives whose headers agree, in order; note what is over."""
        for item in tuple(self.queue):
            if item.data is None:
                told = self._take(item)
                if told is None:
                    return
                self._compare(item, told)
                item.data = item.launch()
            if item.data.done():
                item.over = True
                self.queue.remove(item)

    def _take(self, item: Item) -> list[Header] | None:
        try:
            return self._headers.take()
        except HungUpError as error:
            raise MissedError(error.rank, item.label()) from error

    def _compare(self, item: Item, told: Sequence[Header]) -> None:
        if any(header != told[self.rank] for header in told):
            calls = {self._world_ranks[rank]: decode(*header) for rank, header in enumerate(told)}
            raise mismatch(item.sequence, calls)

    def wait(self, item: Item) -> None:
        """Wait for one collective."""
        self._check_usable(item.label())

        def block(seconds: float) -> None:
            first = next((each for each in self.queue if not each.over), item)
            (self._headers if first.data is None else first.data).wait_for(seconds)

        self.checker.wait(lambda: item.over, block, self._look_for(item))

    def ask(self, item: Item, patience: Patience) -> bool:
        """Whether one collective is over."""
        self._check_usable(item.label())
        return self.checker.ask(lambda: item.over, self._look_for(item), patience)

    def _look_for(self, item: Item) -> Look:
        def look(waited_s: float, broken: bool) -> GroupError | None:
            first = self.queue[0] if self.queue else item
            return self.checker.presence.look(
                self._name, self._world_ranks, first.sequence, first.label(), waited_s, broken
            )

        return look

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> CheckedWork:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        call = checked_call("all_reduce", self.size, buffer.dtype, buffer.numel(), op)
        return self._issue(call, lambda: self._inner.all_reduce(buffer, op))

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> CheckedWork:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        check_whole("reduce_scatter", self.size, whole, piece)
        call = checked_call("reduce_scatter", self.size, piece.dtype, piece.numel(), op)
        return self._issue(call, lambda: self._inner.reduce_scatter(piece, whole, op))

    def all_gather(self, whole: Tensor, piece: Tensor) -> CheckedWork:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        check_whole("all_gather", self.size, whole, piece)
        call = checked_call("all_gather", self.size, piece.dtype, piece.numel())
        return self._issue(call, lambda: self._inner.all_gather(whole, piece))

    def broadcast(self, buffer: Tensor, root: int = 0) -> CheckedWork:
        """Make `buffer` equal to the root's, on every member."""
        call = checked_call("broadcast", self.size, buffer.dtype, buffer.numel(), None, root)
        return self._issue(call, lambda: self._inner.broadcast(buffer, root))

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> CheckedWork:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        call = checked_call("reduce", self.size, buffer.dtype, buffer.numel(), op, root)
        return self._issue(call, lambda: self._inner.reduce(buffer, root, op))

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> CheckedWork:
        """Fill the root's `whole` with the members' pieces; the others give None."""
        check_root_whole("gather", self.rank, self.size, root, whole, piece)
        call = checked_call("gather", self.size, piece.dtype, piece.numel(), None, root)
        return self._issue(call, lambda: self._inner.gather(whole, piece, root))

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> CheckedWork:
        """Give member i the i-th piece of the root's `whole`; the others give None."""
        check_root_whole("scatter", self.rank, self.size, root, whole, piece)
        call = checked_call("scatter", self.size, piece.dtype, piece.numel(), None, root)
        return self._issue(call, lambda: self._inner.scatter(piece, whole, root))

    def barrier(self) -> CheckedWork:
        """Wait until every member has called it: the headers say so."""
        return self._issue(Call("barrier"), lambda: TorchWork())

    def send(self, tensor: Tensor, to: int) -> CheckedMessage:
        """Send to one member. `wait()` may return before the other has received."""
        check_peer("send", self.rank, self.size, to)
        self._begin("send")
        return self._mail.send(tensor, to)

    def recv(self, tensor: Tensor, sender: int) -> CheckedMessage:
        """Receive from one member what it sent: as many elements, of the same dtype."""
        check_peer("recv", self.rank, self.size, sender)
        self._begin("recv")
        return self._mail.recv(tensor, sender)

    # Groups within the group.

    def split(self, ranks: Sequence[int]) -> "Checked":
        """The smaller group of these `ranks`; all members call, each naming the group it goes to."""
        chosen = chosen_by_all(self, ranks)
        self._num_splits += 1
        name = f"{self._name}/{self._num_splits}:{'-'.join(map(str, chosen))}"
        store = dist.PrefixStore(name, self._store)
        group = Checked(
            self.checker,
            store,
            chosen.index(self.rank),
            [self._world_ranks[rank] for rank in chosen],
            name,
            backend=self._inner.backend,
            host=self._host,
        )
        group._larger = self
        self._smaller.add(group)
        return group

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """An ordinary tensor: torch's backends move any memory alike."""
        call = checked_call("empty", self.size, dtype, numel)
        self._issue(call, lambda: TorchWork()).wait()
        return torch.empty(numel, dtype=dtype, device=device)

    def beat(self, busy_s: float = 0.0) -> None:
        """Say that this member makes progress, though it calls nothing, and may be busy for so long."""
        self.checker.presence.signs.beat(busy_s)

    def fail(self, error: BaseException) -> None:
        """Tell the others, in every group of this worker, that it ends with an error."""
        self.checker.fail(error)

    def close(self) -> None:
        """Leave, also all groups split off: whoever still waits for this member gets an error that says so."""
        for smaller in tuple(self._smaller):
            smaller.close()
        if self._larger is not None:
            self._larger._smaller.discard(self)
        self._left = True
        if self in self.checker.groups:
            self.checker.groups.remove(self)
        self._mail.close()
        self._headers.close()
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
    limit_s: float = NO_PROGRESS_LIMIT_S,
    timeout_s: float = JOIN_TIMEOUT_S,
    facts: Mapping[str, str] | None = None,
    holder: int | None = None,
) -> Checked:
    """Meet the others in a store (one of torch's, fresh for this group) and form a checked torch group.

    `host` is the address to listen on: this machine's own, where members are on several machines. `holder` is the rank
    in whose process the store lives, if it lives with one.
    """
    cards = meet(store, rank, size, timeout_s, {"backend": backend, **(facts or {})})
    presence = Presence(dist.PrefixStore("presence", store), rank, cards, limit_s, holder)
    group = Checked(Checker(presence), store, rank, range(size), "world", backend=backend, host=host)
    group.barrier().wait()
    return group
