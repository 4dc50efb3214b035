"""Counts and times every call of a group: `traced(group)` is a group with the same behaviour.

Every finished call is passed to `record` as its two spans, and added to the totals. Costs about 2 µs per call and no
communication.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor

from shoal.comm.costs import sent_elements
from shoal.comm.group import Group, Receipt, Work
from shoal.comm.signature import Signature
from shoal.comm.wrapped_group import WrappedGroup
from shoal.events.spans import LANE, MAPPED, OUTSIDE_STEPS, HostTime, Span, host_ns


@dataclass
class Total:
    """All calls of one operation: `num_bytes` is what this worker sent in them (`costs.py`); for `recv`, received."""

    calls: int = 0
    num_bytes: int = 0
    blocked_ns: int = 0


@final
class _TracedWork:
    """A work whose call is recorded once it has been waited for."""

    __slots__ = ("_group", "_issue", "_over", "_work")

    def __init__(
        self, group: "Traced", operation: str, num_bytes: int, start_ns: int, work: Work, peer: int = -1
    ) -> None:
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
            next(group.sequence),
            peer,
        )
        self._group = group
        self._work = work
        self._over = False

    def wait(self) -> None:
        group, issue = self._group, self._issue
        start_ns = group.clock()
        self._work.wait()
        if not self._over:
            self._over = True
            end_ns = group.clock()
            of_call = (issue.group, issue.sequence, issue.peer)
            group.finished(
                issue, Span(OUTSIDE_STEPS, issue.name, "wait", LANE, start_ns, end_ns, 0, *of_call)
            )

    def done(self) -> bool:
        return self._work.done()

    @property
    def source(self) -> int:
        return cast(Receipt, self._work).source  # only a `recv` has one


@final
class Traced(WrappedGroup):
    """A group that behaves like `group`, counts its calls in `totals`, and passes their spans to `record`.

    >>> import torch
    >>> from shoal.comm.threads.group import run_threads
    >>> def work(group):
    ...     group = Traced(group)
    ...     group.all_reduce(torch.ones(10)).wait()
    ...     return group.totals["all_reduce"].num_bytes
    >>> run_threads(2, work)
    [40, 40]
    """

    def __init__(
        self,
        group: Group,
        record: Callable[[Span], object] = lambda span: None,
        name: str = "world",
        clock: HostTime = host_ns,
        totals: dict[str, Total] | None = None,
    ) -> None:
        super().__init__(group)
        self._record = record
        self.sequence = itertools.count(1)
        """The numbers of the calls."""
        self.name = name
        self.clock = clock
        self.totals: dict[str, Total] = {} if totals is None else totals
        """The calls of this group and of all groups split off from it, by operation."""

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

    # Python evaluates arguments from left to right: each call below reads the clock before it issues the call.

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Start a collective."""
        sent = sent_elements(call.operation, self.rank, self.size, call.numel, call.root or 0)
        sent_bytes = sent * call.dtype.itemsize
        return _TracedWork(
            self, call.operation, sent_bytes, self.clock(), self._group.issue(call, piece, whole)
        )

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Work:
        """Send to one member."""
        return _TracedWork(
            self, "send", tensor.nbytes, self.clock(), self._group.issue_send(call, tensor, to), to
        )

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> Receipt:
        """Receive a message."""
        return _TracedWork(
            self, "recv", tensor.nbytes, self.clock(), self._group.issue_recv(call, tensor, sender), sender
        )

    def around(self, group: Group, ranks: Sequence[int]) -> "Traced":
        """A smaller group, traced under a name that lists its ranks."""
        name = f"{self.name}[{','.join(map(str, ranks))}]"
        return Traced(group, self._record, name, self.clock, self.totals)

    @property
    def untraced(self) -> Group:
        """The group whose calls are counted."""
        return self._group

    def go_on_without(self, ranks: Sequence[int]) -> None:
        """Become the group of all members but these, which have died, for everything that uses this one.

        Ranks follow each other again, from 0; calls are counted as before. All living members call it.
        """
        self._group = self._group.without(ranks)
        self.rank, self.size = self._group.rank, self._group.size

    def note_transfer(self, operation: str, num_bytes: int) -> None:
        """Record a transfer as a call that took no time."""
        now, of_call = self.clock(), (self.name, next(self.sequence))
        issue = Span(OUTSIDE_STEPS, operation, "move", LANE, now, now, num_bytes, *of_call)
        self.finished(issue, Span(OUTSIDE_STEPS, operation, "wait", LANE, now, now, 0, *of_call))

    def note_mapped(self, operation: str, numel: int, dtype: torch.dtype) -> None:
        """Record the bytes that a collective would have sent."""
        sent = sent_elements(operation, self.rank, self.size, numel)
        self.note_transfer(MAPPED, sent * dtype.itemsize)


traced = Traced
"""Wraps a group: `traced(group, spans.append)`."""
