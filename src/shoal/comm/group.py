"""The contract of a group: what its members call together, and what they may rely on.

- *Calls match by order.* The n-th collective of one member meets the n-th of every other; the n-th `send`
  to a member meets the n-th `recv` from the sender. Each call publishes its name, dtype and number of
  elements: members that call different things get a `MismatchError` with a table of ranks, never garbage
  and never a hang.
- *A call gives a `Work`.* When `wait()` returns, the result is there and the caller may overwrite what it
  handed over. Until then the buffers belong to the group. Works may be waited for in any order.
- *Sums have one order*, the balanced tree over ranks (`reduction.py`), so all members hold the same bits
  and runs repeat. (A `TorchGroup` of more than two members keeps its library's own order: still the same
  bits on every member, but not the tree's.)
- *A wait ends.* When a member is dead, stopped, or has made no progress for the group's limit, every wait
  that depends on it ends with a `MemberError` that names it.

One thread at a time may call a group. A *piece* is one member's share of a *whole*, which has size ×
piece elements.
"""

from collections.abc import Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from shoal.comm.reduction import Op

CPU = torch.device("cpu")

NO_PROGRESS_LIMIT_S = 10.0
"""How long a member may go without any sign of progress before the others give it up."""

BUSY_S = 300.0
"""What a member that reads data, saves or evaluates tells the others before: `beat(BUSY_S)`."""


class SlowMemberWarning(UserWarning):
    """A member that keeps the others waiting, though it still makes progress."""


class Work(Protocol):
    """A call that is under way."""

    def wait(self) -> None:
        """Return when the result is there and the caller may overwrite its buffers; raise what went wrong."""
        ...

    def done(self) -> bool:
        """Whether `wait` would return at once. Asking moves the work forward."""
        ...


class Messenger(Protocol):
    """The part of a group that algorithms need."""

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many members there are."""
        ...

    def send(self, tensor: Tensor, to: int) -> Work:
        """Send to one member. `wait()` may return before the other has received."""
        ...

    def recv(self, tensor: Tensor, sender: int) -> Work:
        """Receive from one member what it sent: as many elements, of the same dtype."""
        ...


class Group(Messenger, Protocol):
    """The workers that talk to each other, as one of them sees it."""

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> Work:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        ...

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> Work:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        ...

    def all_gather(self, whole: Tensor, piece: Tensor) -> Work:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        ...

    def broadcast(self, buffer: Tensor, root: int = 0) -> Work:
        """Make `buffer` equal to the root's, on every member."""
        ...

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> Work:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        ...

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> Work:
        """Fill the root's `whole` with the members' pieces; the others give None."""
        ...

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> Work:
        """Give member i the i-th piece of the root's `whole`; the others give None."""
        ...

    def barrier(self) -> Work:
        """Wait until every member has called it."""
        ...

    def split(self, ranks: Sequence[int]) -> Self:
        """The smaller group of these `ranks`; all members call, each naming the group it goes to.

        The ranks must be ascending and contain the caller; all who are named must name the same.
        """
        ...

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """Memory that the group moves without copying; a collective, for building and never for a step.

        The contents are undefined. Groups without such memory give an ordinary tensor.
        """
        ...

    def beat(self, busy_s: float = 0.0) -> None:
        """Say that this member makes progress, though it calls nothing: once per span of long work.

        Before work of its own in which it can say nothing, such as writing a checkpoint, a member tells how long that
        may take: for `busy_s` the others wait without a word, and only then does their patience begin.
        """
        ...

    def fail(self, error: BaseException) -> None:
        """Tell the others, in every group of this worker, that it ends with an error."""
        ...

    def close(self) -> None:
        """Leave, also all groups split off: whoever still waits for this member gets an error that says so."""
        ...
