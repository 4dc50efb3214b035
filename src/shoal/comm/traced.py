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

from shoal.comm.group import CPU, Group, Receipt, Work
from shoal.comm.signature import Signature
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
class TracedReceipt:
    """A traced `recv`."""

    def __init__(self, work: TracedWork, receipt: Receipt) -> None:
        self.wait, self.done = work.wait, work.done
        self._receipt = receipt

    @property
    def source(self) -> int:
        """The rank that sent the message."""
        return self._receipt.source


@final
class Traced(Group):
    """A group that counts: `totals` by operation.

    >>> from shoal.comm.threads import ThreadGroup
    >>> (alone,) = ThreadGroup.world(1)
    >>> group = Traced(alone)
    >>> group.all_reduce(torch.ones(10)).wait()
    >>> group.totals["all_reduce"].num_bytes
    40
    """

    def __init__(self, group: Group, record: Callable[[Call], None] = _ignore, name: str = "world") -> None:
        self.rank, self.size = group.rank, group.size
        self.overlaps, self.shares_memory, self.devices = group.overlaps, group.shares_memory, group.devices
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

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Start a collective, and note its time."""
        start_ns = time.monotonic_ns()
        work = self._group.issue(call, piece, whole)
        return TracedWork(self, call.operation, piece.nbytes, work, start_ns)

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Work:
        """Send to one member."""
        start_ns = time.monotonic_ns()
        return TracedWork(self, "send", tensor.nbytes, self._group.issue_send(call, tensor, to), start_ns)

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> "TracedReceipt":
        """Receive a message."""
        start_ns = time.monotonic_ns()
        work = self._group.issue_recv(call, tensor, sender)
        return TracedReceipt(TracedWork(self, "recv", tensor.nbytes, work, start_ns), work)

    def split(self, ranks: Sequence[int]) -> "Traced":
        """The smaller group of these ranks, traced under a name that contains them."""
        name = f"{self.name}[{','.join(map(str, ranks))}]"
        return Traced(self._group.split(ranks), self._record, name)

    def split_off(self, ranks: tuple[int, ...]) -> "Traced":
        """Make the smaller group of these ranks."""
        return self.split(ranks)

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
