"""Counts and times what a group does: `traced(group)` is a group, and everything on it is written down.

What is known of each call is handed to `record`; totals are kept beside. Costs about 2 µs per call, and no
communication.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import CPU, Group, Work
from shoal.comm.reduction import Op
from shoal.events.calls import Call


@dataclass
class Total:
    """All calls of one operation: `num_bytes` is the buffer's (the piece's, where there is a whole)."""

    calls: int = 0
    num_bytes: int = 0
    blocked_ns: int = 0


def _ignore(call: Call) -> None:
    del call


@final
class TracedWork:
    """A work that reports when it has been waited for."""

    __slots__ = (
        "_group",
        "_issued_ns",
        "_num_bytes",
        "_operation",
        "_over",
        "_sequence",
        "_start_ns",
        "_work",
    )

    def __init__(self, group: "Traced", operation: str, num_bytes: int, work: Work, start_ns: int) -> None:
        self._group = group
        self._operation = operation
        self._num_bytes = num_bytes
        self._work = work
        self._start_ns = start_ns
        self._issued_ns = time.monotonic_ns()
        self._sequence = group.next_sequence()
        self._over = False

    def wait(self) -> None:
        """Wait, and note how long it took."""
        wait_ns = time.monotonic_ns()
        self._work.wait()
        if not self._over:
            self._over = True
            self._group.note(
                Call(
                    self._operation,
                    self._num_bytes,
                    self._group.name,
                    self._sequence,
                    self._start_ns,
                    self._issued_ns,
                    wait_ns,
                    time.monotonic_ns(),
                )
            )

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._work.done()


@final
class Traced:
    """A group that counts: `totals` by operation.

    >>> from shoal.comm.threads import ThreadGroup
    >>> (alone,) = ThreadGroup.world(1)
    >>> group = Traced(alone)
    >>> group.all_reduce(torch.ones(10)).wait()
    >>> group.totals["all_reduce"].num_bytes
    40
    """

    def __init__(self, group: Group, record: Callable[[Call], None] = _ignore, name: str = "world") -> None:
        self._group = group
        self._record = record
        self._sequence = 0
        self.name = name
        self.totals: dict[str, Total] = {}

    def next_sequence(self) -> int:
        """The number of the call that begins now."""
        self._sequence += 1
        return self._sequence

    def note(self, call: Call) -> None:
        """Add a finished call to the totals and hand it to `record`."""
        total = self.totals.get(call.operation)
        if total is None:
            total = self.totals[call.operation] = Total()
        total.calls += 1
        total.num_bytes += call.num_bytes
        total.blocked_ns += call.blocked_ns
        self._record(call)

    @property
    def overlaps(self) -> bool:
        """Whether work moves on while the caller computes."""
        return getattr(self._group, "overlaps", False)

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        return self._group.rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return self._group.size

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> Work:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "all_reduce", buffer.nbytes, self._group.all_reduce(buffer, op), start_ns)

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> Work:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        start_ns = time.monotonic_ns()
        work = self._group.reduce_scatter(piece, whole, op)
        return TracedWork(self, "reduce_scatter", piece.nbytes, work, start_ns)

    def all_gather(self, whole: Tensor, piece: Tensor) -> Work:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "all_gather", piece.nbytes, self._group.all_gather(whole, piece), start_ns)

    def broadcast(self, buffer: Tensor, root: int = 0) -> Work:
        """Make `buffer` equal to the root's, on every member."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "broadcast", buffer.nbytes, self._group.broadcast(buffer, root), start_ns)

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> Work:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "reduce", buffer.nbytes, self._group.reduce(buffer, root, op), start_ns)

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> Work:
        """Fill the root's `whole` with the members' pieces; the others give None."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "gather", piece.nbytes, self._group.gather(whole, piece, root), start_ns)

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> Work:
        """Give member i the i-th piece of the root's `whole`; the others give None."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "scatter", piece.nbytes, self._group.scatter(piece, whole, root), start_ns)

    def send(self, tensor: Tensor, to: int) -> Work:
        """Send to one member."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "send", tensor.nbytes, self._group.send(tensor, to), start_ns)

    def recv(self, tensor: Tensor, sender: int) -> Work:
        """Receive from one member what it sent."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "recv", tensor.nbytes, self._group.recv(tensor, sender), start_ns)

    def barrier(self) -> Work:
        """Wait until every member has called it."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "barrier", 0, self._group.barrier(), start_ns)

    def split(self, ranks: Sequence[int]) -> "Traced":
        """The smaller group of these ranks, traced under a name that tells them."""
        name = f"{self.name}[{','.join(map(str, ranks))}]"
        return Traced(self._group.split(ranks), self._record, name)

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """Memory that the group moves without copying."""
        return self._group.empty(numel, dtype, device)

    def beat(self, busy_s: float = 0.0) -> None:
        """Say that this member makes progress, though it calls nothing, and may be busy for so long."""
        self._group.beat(busy_s)

    def fail(self, error: BaseException) -> None:
        """Tell the others that this worker ends with an error."""
        self._group.fail(error)

    def close(self) -> None:
        """Leave."""
        self._group.close()


def traced(group: Group, record: Callable[[Call], None] = _ignore, name: str = "world") -> Traced:
    """A group that does what `group` does, counts it, and hands every finished call to `record`."""
    return Traced(group, record, name)
