"""Spans: where a step's time went, measured with a clock that is handed in.

The hot path appends one tuple per span. Every step keeps its totals by kind; the spans themselves are kept for every
20th step, or for all with `--trace`.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol

Kind = Literal["data", "compute", "move", "wait", "idle"]
KEPT_EVERY = 20


class Span(NamedTuple):
    """One stretch of time in one lane: a thread or a stream. `group` and `sequence` name a collective."""

    step: int
    name: str
    kind: Kind
    lane: str
    start_ns: int
    end_ns: int
    bytes: int = 0
    group: str = ""
    sequence: int = -1


class Clock(Protocol):
    """Marks moments, cheaply; says later when they were, in nanoseconds of one common zero."""

    lane: str

    def mark(self) -> Any:
        """This moment, as the clock keeps it."""
        ...

    def nanoseconds(self, mark: Any) -> int:
        """When that moment was; may wait until the device got there."""
        ...


class HostClock:
    """The processor's own clock: a mark is already the time."""

    lane = "main"

    def mark(self) -> int:
        """Now."""
        return time.perf_counter_ns()

    def nanoseconds(self, mark: int) -> int:
        """The mark itself."""
        return mark


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
    """Collects the spans of the step in progress.

    On a device that runs behind the host, a mark is a device event and reading it waits; so `take` is called when
    the step is settled, not when it is issued.

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
        """Whether spans are measured: on a GPU only in the steps that keep them, for a mark is not free there."""
        self.marks: list[tuple[str, Kind, Any, Any]] = []

    def __call__(self, name: str, kind: Kind) -> _OpenSpan | AbstractContextManager[None]:
        """Measure the body of a `with`."""
        return _OpenSpan(self, name, kind) if self.active else _NO_SPAN

    def take(self) -> list[tuple[str, Kind, Any, Any]]:
        """The marks since the last call, unread."""
        marks, self.marks = self.marks, []
        return marks

    def read(self, marks: list[tuple[str, Kind, Any, Any]], step: int) -> list[Span]:
        """Marks as spans, their times read from the clock."""
        when = self.clock.nanoseconds
        return [
            Span(step, name, kind, self.clock.lane, when(start), when(end))
            for name, kind, start, end in marks
        ]


def totals_ns(spans: list[Span]) -> dict[str, int]:
    """Nanoseconds by kind."""
    totals: dict[str, int] = {}
    for span in spans:
        totals[span.kind] = totals.get(span.kind, 0) + span.end_ns - span.start_ns
    return totals
