"""A trace of all workers on one clock, as Chrome's JSON: ui.perfetto.dev and chrome://tracing open it.

Each worker is a process with a row for each of its lanes. A step is a slice around the slices of its spans. Arrows show
who waited for whom: from the member of a call that came last to each of the others, and from sender to receiver.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from shoal.events.spans import LANE, Span
from shoal.report.meetings import ANY_MESSAGES, MESSAGES, Meeting, waiting_ns
from shoal.report.step_index import StepIndex, kept_steps
from shoal.report.timeline import joined

MOST_STEPS = 2000
"""Of a longer run the trace has the slowest steps, and others at equal distances."""
SLOWEST = MOST_STEPS // 10
Event = dict[str, Any]
Met = Mapping[int, Sequence[tuple[Meeting, Span]]]


def chosen(seconds: Mapping[int, float], most: int = MOST_STEPS, slowest: int = SLOWEST) -> list[int]:
    """The steps of a trace, in order, from the seconds of all steps that kept their spans.

    >>> chosen({0: 0.1, 20: 0.1, 40: 0.1, 60: 0.5, 80: 0.1, 100: 0.1}, most=3, slowest=1)
    [0, 40, 60]
    """
    if len(seconds) <= most:
        return sorted(seconds)
    longest = sorted(seconds, key=lambda step: -seconds[step])[:slowest]
    rest = sorted(set(seconds).difference(longest))
    spread = [rest[number * len(rest) // (most - slowest)] for number in range(most - slowest)]
    return sorted([*longest, *spread])


def write_trace(file: BinaryIO, indices: Sequence[StepIndex]) -> int:
    """Write the trace of a run, a step at a time; how many steps it has."""
    steps = chosen({step: max(seconds) for step, seconds in kept_steps(indices).items()})
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    before = b""
    for event in trace_events(indices, steps):
        file.write(before + json.dumps(event, separators=(",", ":")).encode())
        before = b",\n"
    file.write(b"\n]}\n")
    return len(steps)


def trace_events(indices: Sequence[StepIndex], steps: Sequence[int]) -> Iterator[Event]:
    """The events of the trace; its times are microseconds since the first span of the first step."""
    workers = max(index.workers for index in indices)
    lanes: dict[tuple[int, str], int] = {}
    origin_ns, arrow = None, 0
    for step in steps:
        spans = {index.rank: index.spans(step) for index in indices if step in index.kept}
        if origin_ns is None:
            origin_ns = min((span.start_ns for own in spans.values() for span in own), default=None)
        clock = _Clock(origin_ns or 0, lanes)
        for rank, own in spans.items():
            for span in own:
                if (rank, span.lane) not in lanes:
                    yield from clock.names(rank, span.lane)
        met, members = joined(step, spans, workers)
        for rank, own in spans.items():
            calls = [(span, waiting_ns(span, max(members[meeting].values()))) for meeting, span in met[rank]]
            # Viewers nest slices that begin together in the order of the file.
            yield from sorted(
                clock.slices(step, rank, own, calls), key=lambda event: (event["ts"], -event["dur"])
            )
        for start, end in _arrows(met, members):
            arrow += 1
            event = {"id": arrow, "name": start.span.name, "cat": "call"}
            yield {"ph": "s", **event, **clock.place(*start)}
            yield {"ph": "f", "bp": "e", **event, **clock.place(*end)}


class _Place(NamedTuple):
    """A moment in a slice."""

    rank: int
    span: Span
    moment_ns: int


class _Clock(NamedTuple):
    """Turns spans into events."""

    origin_ns: int
    lanes: dict[tuple[int, str], int]
    """The number of each lane, by rank and name."""

    def names(self, rank: int, lane: str) -> Iterator[Event]:
        """Name a lane, and with its first lane the worker."""
        place = {"pid": rank, "tid": self.lanes.setdefault((rank, lane), len(self.lanes))}
        yield {"ph": "M", "name": "process_name", "args": {"name": f"rank {rank}"}, **place}
        yield {"ph": "M", "name": "process_sort_index", "args": {"sort_index": rank}, **place}
        yield {"ph": "M", "name": "thread_name", "args": {"name": lane}, **place}

    def slices(
        self, step: int, rank: int, spans: Sequence[Span], calls: Sequence[tuple[Span, int]]
    ) -> Iterator[Event]:
        """The step, its spans that are no calls, and the two of each call with how long it waited for others."""
        own = [span for span in spans if span.lane == LANE]
        if own:
            start_ns, end_ns = min(span.start_ns for span in own), max(span.end_ns for span in own)
            whole = Span(step, f"step {step}", "compute", LANE, start_ns, end_ns)
            yield self._slice(rank, whole, whole.name) | {"cat": "step"}
        for span in spans:
            if not span.group:
                yield self._slice(rank, span, span.name)
        for span, waited_ns in calls:
            name = span.name if span.issues_call else f"{span.name} (result)"
            args = {"step": step, "group": span.group, "bytes": span.bytes, "waited_ms": waited_ns / 1e6}
            yield self._slice(rank, span, name) | {"args": args}

    def place(self, rank: int, span: Span, moment_ns: int) -> Event:
        """A moment in a lane."""
        return {"pid": rank, "tid": self.lanes[rank, span.lane], "ts": (moment_ns - self.origin_ns) / 1e3}

    def _slice(self, rank: int, span: Span, name: str) -> Event:
        event: Event = {"ph": "X", "name": name, "cat": span.kind, "dur": span.duration_ns / 1e3}
        return event | self.place(rank, span, span.start_ns) | {"args": {"step": span.step}}


def _arrows(met: Met, members: Mapping[Meeting, Mapping[int, int]]) -> Iterator[tuple[_Place, _Place]]:
    """From the first span of the last member, or of the sender, to the span in which each other one was met."""
    spans: dict[Meeting, dict[int, list[Span]]] = {}
    for rank, own in met.items():
        for meeting, span in own:
            if len(members[meeting]) > 1 and ANY_MESSAGES not in meeting:
                spans.setdefault(meeting, {}).setdefault(rank, []).append(span)
    for meeting, ranks in spans.items():
        senders = [rank for rank, own in ranks.items() if {span.name for span in own} == {MESSAGES[0]}]
        last = max(ranks, key=lambda rank: members[meeting][rank])
        source = senders[0] if len(senders) == 1 and len(ranks) == 2 else last
        first = min(ranks[source], key=lambda span: span.start_ns)
        for rank, own in ranks.items():
            if rank != source:
                met_in = next((span for span in own if span.end_ns > first.start_ns), own[-1])
                inside_ns = min(max(first.start_ns, met_in.start_ns), max(met_in.end_ns - 1, met_in.start_ns))
                yield _Place(source, first, first.start_ns), _Place(rank, met_in, inside_ns)
