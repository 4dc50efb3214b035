"""Counts and times every call of a group: `traced(group)` is a group with the same behaviour.

Every finished call is passed to `record` as its two spans, and added to the totals. Costs about 2 µs per call and no
communication.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import CPU, Group, Work
from shoal.comm.reduction import Op
from shoal.events.spans import LANE, OUTSIDE_STEPS, HostTime, Span, host_ns


@dataclass
class Total:
    """All calls of one operation: `num_bytes` is the buffer's (the piece's, where there is a whole)."""

    calls: int = 0
    num_bytes: int = 0
    blocked_ns: int = 0


def _ignore(span: Span) -> None:
    del span


@final
class TracedWork:
    """A work whose call is recorded once it has been waited for."""

    __slots__ = ("_group", "_issue", "_over", "_work")

    def __init__(self, group: "Traced", operation: str, num_bytes: int, start_ns: int, work: Work) -> None:
        end_ns = group.clock()
        self._issue = Span(
            OUTSIDE_STEPS,
            operation,
            "move",
            LANE,
            start_ns,
            end_ns,
            num_bytes,
            group.name,
            group.next_sequence(),
        )
        self._group = group
        self._work = work
        self._over = False

    def wait(self) -> None:
        """Wait, and record the call."""
        group, issue = self._group, self._issue
        start_ns = group.clock()
        self._work.wait()
        if not self._over:
            self._over = True
            end_ns = group.clock()
            group.finished(
                issue,
                Span(
                    OUTSIDE_STEPS, issue.name, "wait", LANE, start_ns, end_ns, 0, issue.group, issue.sequence
                ),
            )

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._work.done()


@final
class Traced:
    """A group that behaves like `group`, counts its calls in `totals`, and passes their spans to `record`.

    >>> from shoal.comm.threads import ThreadGroup
    >>> (alone,) = ThreadGroup.world(1)
    >>> group = Traced(alone)
    >>> group.all_reduce(torch.ones(10)).wait()
    >>> group.totals["all_reduce"].num_bytes
    40
    """

    def __init__(
        self,
        group: Group,
        record: Callable[[Span], None] = _ignore,
        name: str = "world",
        clock: HostTime = host_ns,
    ) -> None:
        self._group = group
        self._record = record
        self._sequence = 0
        self.name = name
        self.clock = clock
        self.totals: dict[str, Total] = {}

    def next_sequence(self) -> int:
        """The number of the call that begins now."""
        self._sequence += 1
        return self._sequence

    def finished(self, issue: Span, wait: Span) -> None:
        """Add a finished call to the totals and record its two spans."""
        total = self.totals.get(issue.name)
        if total is None:
            total = self.totals[issue.name] = Total()
        total.calls += 1
        total.num_bytes += issue.bytes
        total.blocked_ns += issue.end_ns - issue.start_ns + wait.end_ns - wait.start_ns
        self._record(issue)
        self._record(wait)

    @property
    def overlaps(self) -> bool:
        """Whether calls progress while the caller computes."""
        return getattr(self._group, "overlaps", False)

    @property
    def rank(self) -> int:
        """This member's number, from 0."""
        return self._group.rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return self._group.size

    # Python evaluates arguments from left to right: each call below reads the clock before it issues the call.

    def all_reduce(self, buffer: Tensor, op: Op = Op.SUM) -> Work:
        """Make `buffer` the reduction of all members' buffers, on every member."""
        return TracedWork(self, "all_reduce", buffer.nbytes, self.clock(), self._group.all_reduce(buffer, op))

    def reduce_scatter(self, piece: Tensor, whole: Tensor, op: Op = Op.SUM) -> Work:
        """Give member i the reduction of everyone's i-th piece of `whole`."""
        return TracedWork(
            self, "reduce_scatter", piece.nbytes, self.clock(), self._group.reduce_scatter(piece, whole, op)
        )

    def all_gather(self, whole: Tensor, piece: Tensor) -> Work:
        """Fill `whole` with the members' pieces, in rank order, on every member."""
        return TracedWork(
            self, "all_gather", piece.nbytes, self.clock(), self._group.all_gather(whole, piece)
        )

    def broadcast(self, buffer: Tensor, root: int = 0) -> Work:
        """Make `buffer` equal to the root's, on every member."""
        return TracedWork(self, "broadcast", buffer.nbytes, self.clock(), self._group.broadcast(buffer, root))

    def reduce(self, buffer: Tensor, root: int = 0, op: Op = Op.SUM) -> Work:
        """Make the root's `buffer` the reduction of all; the others' stay as they are."""
        return TracedWork(self, "reduce", buffer.nbytes, self.clock(), self._group.reduce(buffer, root, op))

    def gather(self, whole: Tensor | None, piece: Tensor, root: int = 0) -> Work:
        """Fill the root's `whole` with the members' pieces; the others pass None."""
        return TracedWork(self, "gather", piece.nbytes, self.clock(), self._group.gather(whole, piece, root))

    def scatter(self, piece: Tensor, whole: Tensor | None, root: int = 0) -> Work:
        """Give member i the i-th piece of the root's `whole`; the others pass None."""
        return TracedWork(
            self, "scatter", piece.nbytes, self.clock(), self._group.scatter(piece, whole, root)
        )

    def send(self, tensor: Tensor, to: int) -> Work:
        """Send to one member."""
        return TracedWork(self, "send", tensor.nbytes, self.clock(), self._group.send(tensor, to))

    def recv(self, tensor: Tensor, sender: int) -> Work:
        """Receive from one member."""
        return TracedWork(self, "recv", tensor.nbytes, self.clock(), self._group.recv(tensor, sender))

    def barrier(self) -> Work:
        """Wait until every member has called it."""
        return TracedWork(self, "barrier", 0, self.clock(), self._group.barrier())

    def split(self, ranks: Sequence[int]) -> "Traced":
        """The smaller group of these ranks, traced under a name that lists them."""
        name = f"{self.name}[{','.join(map(str, ranks))}]"
        return Traced(self._group.split(ranks), self._record, name, self.clock)

    def empty(self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
        """Memory that the group moves without a copy."""
        return self._group.empty(numel, dtype, device)

    def beat(self, busy_s: float = 0.0) -> None:
        """Report progress outside of calls; for `busy_s` seconds this member may make no call."""
        self._group.beat(busy_s)

    def fail(self, error: BaseException) -> None:
        """Report to the other members that this worker ends with an error."""
        self._group.fail(error)

    def close(self) -> None:
        """Leave the group."""
        self._group.close()


traced = Traced
"""Wraps a group: `traced(group, spans.append)`."""
