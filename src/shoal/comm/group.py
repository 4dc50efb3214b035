"""The contract of a group, and every collective written once over `Group.issue`.

- *Calls match by order.* The n-th collective of one member meets the n-th of every other member; the n-th `send` to a
  member meets the n-th `recv` from the sender. Each call publishes its signature (operation, dtype, number of elements,
  …): members that call different things get a `MismatchError` with a table of ranks, never garbage and never a hang.
- *A call returns a `Work`.* When `wait()` returns, the result is in place and the caller may overwrite its buffers.
  Until then the buffers belong to the group. Works may be waited for in any order.
- *Reductions have one order*, the balanced tree over ranks (`reduction.py`): all members hold the same bits and runs
  repeat. (Groups over torch with more than two members keep their library's order: still the same bits on every
  member, but not the tree's. `tree_sums.py` gives them the tree's.)
- *Every wait ends.* When a member is dead, stopped, or has made no progress for the group's limit, every wait that
  depends on it raises a `MemberError` that names it (`liveness/judge.py`).

A group is not thread-safe. A *piece* is one member's part of a *whole*, which has size × piece elements.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, Self, final

import torch
from torch import Tensor

from shoal.comm.liveness.judge import SlowMemberWarning as SlowMemberWarning
from shoal.comm.liveness.limits import BUSY_S as BUSY_S
from shoal.comm.reduction import Op, OpName
from shoal.comm.signature import (
    Signature,
    check_agreement,
    check_all_to_all,
    check_integer,
    check_peer,
    check_root_whole,
    check_split,
    check_whole,
    checked_signature,
    signature_of,
)
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Number
from shoal.errors import GroupError

CPU = torch.device("cpu")

ANYONE = -1
"""As the sender of a `recv`: whichever member sends first."""

_BARRIER = Signature("barrier")
_NOTHING = torch.empty(0, dtype=torch.uint8)


class Work(Protocol):
    """A call that is under way."""

    def wait(self) -> None:
        """Return when the result is in place and the caller may overwrite its buffers; raise what went wrong."""
        ...

    def done(self) -> bool:
        """Whether `wait` would return at once. Asking moves the work forward."""
        ...


class Receipt(Work, Protocol):
    """A `recv` that is under way."""

    @property
    def source(self) -> int:
        """The rank that sent the message. With `ANYONE` it is known once `wait` has returned."""
        ...


@final
class Finished:
    """A work that was over when it was issued."""

    def wait(self) -> None:
        """Return at once."""

    def done(self) -> bool:
        """Always true."""
        return True


class Messenger(Protocol):
    """The part of a group that algorithms need."""

    rank: int
    """This member's number, from 0."""
    size: int
    """How many members there are."""

    def send(self, tensor: Tensor, to: int) -> Work:
        """Send to one member. `wait()` may return before the other has received."""
        ...

    def recv(self, tensor: Tensor, sender: int) -> Work:
        """Receive what one member sent: as many elements, of the same dtype."""
        ...


class Group(ABC):
    """The workers that communicate, as one of them sees the group.

    A kind of group implements `issue`, `issue_send`, `issue_recv`, `split_off`, `beat`, `fail`, `closed` and `close`,
    and declares what it can do; arguments are checked here.
    """

    rank: int
    """This member's number, from 0."""
    size: int
    """How many members there are."""
    kind: str
    """What it runs on: threads, shm, gloo or nccl."""
    overlaps: bool = False
    """Whether data moves while the caller computes: then starting a collective early hides its time."""
    shares_memory: bool = False
    """Whether collectives on tensors from `empty` run in place in every member's memory, without copies."""
    maps_memory: bool = False
    """Whether a member can read and write every other's memory from `empty` (`views_of_all`)."""
    sums_along_tree: bool = False
    """Whether its sums have the order of the balanced tree over ranks (`reduction.py`) for any number of members."""
    devices: tuple[str, ...] = ("cpu",)
    """The types of device whose tensors the group accepts; "cpu" is always among them."""
    address: str = "127.0.0.1"
    """The address of this machine on which this member's connections listen."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank {self.rank} of {self.size}, {self.kind})"

    # What a kind of group implements.

    @abstractmethod
    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Start a collective whose arguments have been checked; the tensors do not require gradients."""

    @abstractmethod
    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Work:
        """Start a checked `send`."""

    @abstractmethod
    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> Receipt:
        """Start a checked `recv`; `sender` may be `ANYONE`."""

    @abstractmethod
    def split_off(self, ranks: tuple[int, ...]) -> Self:
        """Make the smaller group of these ranks, on which all of them agree. Every member calls this."""

    @abstractmethod
    def beat(self, busy_s: float = 0.0) -> None:
        """Report progress outside of calls: once per span of long work.

        Before long work in which it cannot report, such as writing a checkpoint, a member announces how long that may
        take: for `busy_s` the others wait without a warning, and only then does the limit begin to count.
        """

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Report to all members, in every group of this worker, that it ends with an error."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether this member has left the group: then every call on it raises."""

    @abstractmethod
    def close(self) -> None:
        """Leave this group and all groups split off from it; members that still wait for this one get an error."""

    def check_members(self, label: str, waited_s: float) -> None:
        """Raise when a member will not come, for a wait outside of this group's calls: at an RPC, for example.

        Call it about every LOOK_EVERY_S. `label` says what the caller has waited for, `waited_s` how long; 0 if it is
        at work itself. A member counts as slow or stuck only while it shows no progress: an idle member, which waits
        for nothing in particular, calls `beat`.
        """
        raise NotImplementedError(f"{self.kind} groups do not watch their members outside of calls")

    def tolerate_deaths(self, ranks: Sequence[int]) -> None:
        """Go on receiving from `ANYONE` when one of these members dies.

        A wait for such a `recv` then raises the `MemberError` of each death once, after that member's last message; the
        `recv` is still under way, and the caller waits for it again. `without` makes the group of all that are left.
        """
        raise GroupError(f"{self.kind} groups cannot continue without a member that has died", "Use shm.")

    def without(self, ranks: Sequence[int]) -> Self:
        """The group of all members but these, which have died; all others call it, and name the same ones."""
        raise GroupError(f"{self.kind} groups cannot continue without a member that has died", "Use shm.")

    # Only a traced group counts.

    def note_transfer(self, operation: str, num_bytes: int) -> None:  # noqa: B027
        """Count bytes that went over this worker's link outside of this group's calls."""

    def note_mapped(self, operation: str, numel: int, dtype: torch.dtype) -> None:  # noqa: B027
        """Count a collective that was not called, because the members map each other's memory.

        `numel` counts the piece where there is a whole, as in a signature.
        """

    def allocate(self, numel: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The memory of `empty`: an ordinary tensor, unless the group has memory of its own."""
        return torch.empty(numel, dtype=dtype, device=device)

    def map_all(self, tensor: Tensor) -> list[Tensor]:
        """The memory of `views_of_all`, for a group that `maps_memory`."""
        raise GroupError(
            f"members of a {self.kind} group do not see each other's memory", "Use shm, or threads."
        )

    def map_one(self, numel: int, dtype: torch.dtype) -> Tensor:
        """The memory of `common`, for a group that `maps_memory`."""
        raise GroupError(
            f"members of a {self.kind} group do not see each other's memory", "Use shm, or threads."
        )

    # Collectives.

    def all_reduce(self, buffer: Tensor, op: Op | OpName = Op.SUM) -> Work:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        return self._issue(signature_of("all_reduce", self.size, buffer, op), buffer)

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op | OpName = Op.SUM) -> Work:
        """Give member i the reduction of all members' i-th piece of `whole`."""
        check_whole("reduce_scatter", self.size, whole, piece)
        return self._issue(signature_of("reduce_scatter", self.size, piece, op), piece, whole)

    def all_gather(self, whole: Tensor, piece: Tensor) -> Work:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        check_whole("all_gather", self.size, whole, piece)
        return self._issue(signature_of("all_gather", self.size, piece), piece, whole)

    def all_to_all(self, out: Tensor, whole: Tensor) -> Work:
        """Give piece i of `whole` to member i, and fill `out` with the pieces that all members give this one.

        Both are wholes of size equal pieces, and must not overlap in memory.
        """
        check_all_to_all(self.size, out, whole)
        call = checked_signature("all_to_all", self.size, out.dtype, out.numel() // self.size)
        return self._issue(call, out, whole)

    def broadcast(self, buffer: Tensor, root: int = 0) -> Work:
        """Make `buffer` equal to the root's, on every member."""
        check_integer("broadcast", "root", root)
        return self._issue(signature_of("broadcast", self.size, buffer, None, root), buffer)

    def reduce(self, buffer: Tensor, root: int = 0, op: Op | OpName = Op.SUM) -> Work:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        check_integer("reduce", "root", root)
        return self._issue(signature_of("reduce", self.size, buffer, op, root), buffer)

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> Work:
        """Fill the root's `whole` with the members' pieces; the others pass None."""
        return self._issue_at_root("gather", piece, whole, root)

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> Work:
        """Give member i the i-th piece of the root's `whole`; the others pass None."""
        return self._issue_at_root("scatter", piece, whole, root)

    def barrier(self) -> Work:
        """Wait until every member has called it."""
        return self.issue(_BARRIER, _NOTHING)

    def _issue_at_root(self, operation: str, piece: Tensor, whole: Tensor | None, root: int) -> Work:
        check_integer(operation, "root", root)
        call = signature_of(operation, self.size, piece, None, root)
        check_root_whole(operation, self.rank, self.size, root, whole, piece)
        return self._issue(call, piece, whole if self.rank == root else None)

    def _issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        if not piece.is_cpu:
            self._check_device(call, piece)
        if piece.requires_grad:
            piece = piece.detach()
        if whole is not None:
            if not whole.is_cpu:
                self._check_device(call, whole)
            whole = whole.detach()
        return self.issue(call, piece, whole)

    def _check_device(self, call: Signature, tensor: Tensor) -> None:
        if tensor.device.type not in self.devices:
            raise GroupError(
                f"{call.operation}: this group does not support tensors on {tensor.device}",
                f"It supports: {', '.join(self.devices)}. For GPUs use shoal.join() without a kind.",
            )

    # Messages.

    def send(self, tensor: Tensor, to: int) -> Work:
        """Send to one member. `wait()` may return before the other has received."""
        check_peer("send", self.rank, self.size, to)
        call = signature_of("message", self.size, tensor)
        self._check_device(call, tensor)
        return self.issue_send(call, tensor.detach(), to)

    def recv(self, tensor: Tensor, sender: int) -> Receipt:
        """Receive what `sender` sent: as many elements, of the same dtype.

        With `sender=ANYONE` the work receives one message from any member; its `source` is its rank. Messages of one
        member arrive in the order in which it sent them; messages of different members in no guaranteed order. While a
        `recv` from `ANYONE` and one that names a member are under way together, either may get that member's next
        message: wait for one before you start the other where that matters. A `recv` from `ANYONE` raises when a member
        has died or failed, or when all others have left, are stopped or are stuck.
        """
        check_integer("recv", "the sender", sender)
        if sender != ANYONE or self.size == 1:
            check_peer("recv", self.rank, self.size, sender)
        call = signature_of("message", self.size, tensor)
        self._check_device(call, tensor)
        return self.issue_recv(call, tensor.detach(), sender)

    # Groups within the group, memory.

    def serving(self, device: torch.device) -> "Group":
        """The group for tensors on `device`: this one, unless it has another for them. All members call it together."""
        return self

    @checks_arguments
    def split(self, ranks: Sequence[int]) -> Self:
        """The smaller group of these `ranks`; all members call, each naming the group that it joins.

        The ranks must be ascending and contain the caller; all members that are named must name the same ranks.
        """
        chosen = check_split(self.rank, self.size, ranks)
        named = torch.full((self.size,), -1, dtype=torch.int64)
        named[: len(chosen)] = torch.tensor(chosen)
        table = torch.empty(self.size, self.size, dtype=torch.int64)
        self.all_gather(table, named).wait()
        check_agreement([[rank for rank in row if rank >= 0] for row in table.tolist()])
        return self.split_off(chosen)

    @checks_arguments
    def empty(
        self, numel: Number, dtype: torch.dtype = torch.float32, device: torch.device | str = CPU
    ) -> Tensor:
        """Memory with undefined contents that the group moves in the cheapest way it has (`shares_memory`).

        A collective, for setting up and never for a step.
        """
        self._issue(
            checked_signature("empty", self.size, dtype, numel), torch.empty(0, dtype=dtype, device=device)
        ).wait()
        return self.allocate(numel, dtype, torch.device(device))

    @checks_arguments
    def views_of_all(self, tensor: Tensor) -> list[Tensor]:
        """All members' tensors from one call of `empty`, in rank order, each in its own memory: this one's among them.

        A collective, for setting up. What a member writes there, another sees after a later collective of both.
        """
        views = self.map_all(tensor.detach())
        self.barrier().wait()
        return views

    @checks_arguments
    def common(self, numel: Number, dtype: torch.dtype = torch.float32) -> Tensor:
        """One memory for all members, filled with zeros: for a group that `maps_memory`.

        Of size equal parts, one after the other, each member is the first to write its own: on a machine with several
        memories the part is then near its processor. A collective, for setting up. What a member writes there, another
        sees after a later collective of both.
        """
        self._issue(checked_signature("empty", self.size, dtype, numel), torch.empty(0, dtype=dtype)).wait()
        memory = self.map_one(numel, dtype)
        part = -(-numel // self.size)
        memory[self.rank * part : (self.rank + 1) * part].zero_()
        self.barrier().wait()
        return memory
