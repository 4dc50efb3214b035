"""Spans: one record for everything that takes time, measured with a clock that is passed in.

The hot path appends one tuple per span. Every step keeps its totals by kind; the spans themselves are kept for every
20th step, or for all steps with `--trace`.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol

Kind = Literal["data", "compute", "encode", "move", "wait", "idle", "compile", "save"]
"""To encode is also to decode. Compiling is not training: a step's seconds leave it out. Only profiles have `save`."""
EVALUATION, SAVE, SYNCHRONISE = "evaluation", "save", "synchronise"
"""Names of spans in profiles: a forward pass without gradients, `torch.save`, the host waits for its GPU."""
KEPT_EVERY = 20
OUTSIDE_STEPS = -1
"""The step of a span whose step is not known: a group records its calls so, and the log adds the step."""
LANE = "main"
"""The lane of the thread that trains."""
RECEIVED = "recv"
"""The call whose bytes came in; the bytes of every other call went out."""
MAPPED = "mapped"
"""The call that was not made, because workers map each other's memory: its bytes are counted, and did not travel."""
PULLED = "pull"
"""The weights that a parameter server sends to a worker, counted by the worker."""
NOTED = (MAPPED, PULLED, "rpc")
"""Counted transfers that no other member meets."""


class Span(NamedTuple):
    """An interval of time in one lane, which is a thread or a stream.

    A call of a group becomes two spans with the same `group` and `sequence`, because the caller may do other work
    between them: issuing the call (kind `move`, with the bytes) and waiting for its result (kind `wait`). In both of
    them the caller is blocked. They follow one another in every list of spans. Other spans have no group.
    """

    step: int
    name: str
    kind: Kind
    lane: str
    start_ns: int
    end_ns: int
    bytes: int = 0
    group: str = ""
    sequence: int = -1
    peer: int = -1
    """Of a message: the member that it goes to or comes from, by its rank in the group; -1 if unknown."""

    @property
    def duration_ns(self) -> int:
        """From start to end."""
        return self.end_ns - self.start_ns

    @property
    def issues_call(self) -> bool:
        """Whether this is the first of a call's two spans."""
        return self.group != "" and self.kind == "move"

    @property
    def sent_bytes(self) -> int:
        """The bytes that leave a worker in this call, or would without mapped memory."""
        return self.bytes if self.name != RECEIVED else 0


HostTime = Callable[[], int]
"""Reads a clock of the host, in nanoseconds."""

host_ns: HostTime = time.monotonic_ns
"""The host clock of all spans and calls; one offset per worker therefore maps all its times to rank 0's clock."""


class Clock(Protocol):
    """Marks moments cheaply and converts them to nanoseconds of the host clock later."""

    lane: str

    def mark(self) -> Any:
        """The current moment, in the clock's own form."""
        ...

    def nanoseconds(self, mark: Any, /) -> int:
        """The time of a mark on the host clock; may wait until the device reaches it."""
        ...


class HostClock:
    """The host's clock: a mark is already the time."""

    lane = LANE
    nanoseconds = int

    def __init__(self, now: HostTime = host_ns) -> None:
        self.mark = now


class _OpenSpan:
    """A span being measured: a context manager without a generator's overhead."""

    __slots__ = ("_kind", "_name", "_recorder", "_start")

    def __init__(self, recorder: "SpanRecorder", name: str, kind: Kind) -> None:
        self._recorder = recorder
        self._name = name
        self._kind: Kind = kind

    def __enter__(self) -> None:
        self._start = self._recorder.mark()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.marks.append((self._name, self._kind, self._start, self._recorder.mark()))


_NO_SPAN = nullcontext()


class SpanRecorder:
    """Collects the spans of the current step.

    On a device that runs behind the host, a mark is a device event, and reading it waits for the device. So marks are
    read when the losses of their steps are read, not in the step itself.

    >>> spans = SpanRecorder(HostClock())
    >>> with spans("forward", "compute"):
    ...     pass
    >>> [(name, kind) for name, kind, start, end in spans.marks]
    [('forward', 'compute')]
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.mark = clock.mark
        self.active = True
        """Whether spans are measured: on a GPU only in steps that keep them, because a mark is not free there."""
        self.marks: list[tuple[str, Kind, Any, Any]] = []

    def __call__(self, name: str, kind: Kind) -> _OpenSpan | AbstractContextManager[None]:
        """Measure the body of a `with`."""
        return _OpenSpan(self, name, kind) if self.active or kind == "compile" else _NO_SPAN

    def take(self) -> list[tuple[str, Kind, Any, Any]]:
        """Remove and return the marks since the last call, unread."""
        marks, self.marks = self.marks, []
        return marks

    def read(self, marks: list[tuple[str, Kind, Any, Any]], step: int) -> list[Span]:
        """Marks as spans, with times of the host clock."""
        when = self.clock.nanoseconds
        return [
            Span(step, name, kind, self.clock.lane, when(start), when(end))
            for name, kind, start, end in marks
        ]


class CallTotals(NamedTuple):
    """What a worker's calls of groups add up to."""

    blocked_ns: int
    """The time in which the worker was in a call."""
    sent_bytes: int
    mapped_bytes: int
    """How many of the bytes did not travel (`MAPPED`)."""


def totals_of_calls(spans: Iterable[Span]) -> CallTotals:
    """The totals of spans that belong to calls.

    >>> issued = Span(0, "send", "move", LANE, 0, 5, 64, "world")
    >>> totals_of_calls([issued, Span(0, "send", "wait", LANE, 6, 9, 0, "world")])
    CallTotals(blocked_ns=8, sent_bytes=64, mapped_bytes=0)
    """
    blocked_ns = sent_bytes = mapped_bytes = 0
    for _, name, _, _, start_ns, end_ns, num_bytes, *_ in spans:
        blocked_ns += end_ns - start_ns
        if name != RECEIVED:
            sent_bytes += num_bytes
        if name == MAPPED:
            mapped_bytes += num_bytes
    return CallTotals(blocked_ns, sent_bytes, mapped_bytes)


def silent() -> SpanRecorder:
    """A recorder that measures nothing."""
    recorder = SpanRecorder(HostClock())
    recorder.active = False
    return recorder


def totals_ns(spans: list[Span]) -> dict[str, int]:
    """Nanoseconds by kind. Encoding happens inside of other spans, in backward or an exchange: it counts once.

    >>> backward = Span(0, "backward", "compute", LANE, 0, 100)
    >>> totals_ns([Span(0, "encode", "encode", LANE, 20, 50), backward])
    {'encode': 30, 'compute': 70}
    """
    totals: dict[str, int] = {}
    for _, _, kind, _, start_ns, end_ns, *_ in spans:
        totals[kind] = totals.get(kind, 0) + end_ns - start_ns
    for inner in [span for span in spans if span.kind == "encode"]:
        around = [
            span
            for span in spans
            if span.kind != "encode" and span.start_ns <= inner.start_ns and inner.end_ns <= span.end_ns
        ]
        if around:
            totals[min(around, key=lambda span: span.duration_ns).kind] -= inner.duration_ns
    return totals
