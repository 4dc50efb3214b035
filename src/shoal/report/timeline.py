"""One step of all workers on one clock: what each did at every moment, and what the length of the step depended on.

Every moment of a worker has one kind. Spans are nested, and the innermost one counts. A call is waiting until its last
member arrives, then moving; what lies in no span is `idle`: the loop itself, or nothing at all.

The critical path goes back from the end of the step. Where a worker waited for a call, the path goes over to the worker
that arrived last, because only an earlier arrival of that worker would have ended the wait sooner.

    rank 0  ═════ compute ════┤· · · waiting · · ·│══ moving ══┤══ update ══
    rank 1  ═══════════════ compute ══════════════╛── moving ──┤── update ──
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Literal, NamedTuple, get_args

from shoal.errors import ConfigError
from shoal.events.spans import Span
from shoal.report.communication import WARM_UP_STEPS
from shoal.report.meetings import Meeting, arrivals, meetings, waiting_ns
from shoal.report.step_index import StepIndex, kept_by_most, read_indices

Part = Literal["data", "compute", "encode", "move", "wait", "idle"]
PARTS: tuple[Part, ...] = get_args(Part)
OF_KIND: Mapping[str, Part] = {
    "data": "data", "compute": "compute", "compile": "compute", "encode": "encode", "move": "move",
    "wait": "wait", "idle": "wait",
}  # fmt: skip
"""The part that a span of a kind belongs to; a worker that has called a function of another one (RPC) waits."""


class Interval(NamedTuple):
    """A stretch of a worker's time."""

    start_ns: int
    end_ns: int
    part: Part
    name: str = ""

    @property
    def duration_ns(self) -> int:
        """From start to end."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Row:
    """The step of one worker: intervals that follow each other without a gap."""

    rank: int
    intervals: tuple[Interval, ...]
    seconds: float
    """How long the step took by the log of the worker."""

    @property
    def shares_ns(self) -> dict[Part, int]:
        """The time of each part."""
        return totals(self.intervals)


@dataclass(frozen=True)
class Join:
    """A call of several workers."""

    name: str
    arrived_ns: Mapping[int, int]
    """When each member entered the call."""

    @property
    def last(self) -> int:
        """The rank of the member that came last."""
        return max(self.arrived_ns, key=lambda rank: (self.arrived_ns[rank], -rank))


class PathPart(NamedTuple):
    """A stretch of the critical path: the step could not end earlier because of what this worker did in it."""

    rank: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class StepTimeline:
    """One step of all workers that kept its spans; times are on rank 0's clock."""

    step: int
    rows: tuple[Row, ...]
    joins: tuple[Join, ...]
    path: tuple[PathPart, ...]

    @property
    def start_ns(self) -> int:
        """When the first worker began."""
        return min(row.intervals[0].start_ns for row in self.rows)

    @property
    def end_ns(self) -> int:
        """When the last worker ended."""
        return max(row.intervals[-1].end_ns for row in self.rows)

    @property
    def path_ns(self) -> dict[Part, int]:
        """What the critical path consists of."""
        rows = {row.rank: row for row in self.rows}
        return totals([each for part in self.path for each in _between(rows[part.rank].intervals, part)])

    def on_path_ns(self, rank: int) -> int:
        """How long a worker is on the critical path."""
        return sum(part.end_ns - part.start_ns for part in self.path if part.rank == rank)


@dataclass(frozen=True)
class Timeline:
    """Two steps of a run."""

    median: StepTimeline
    slowest: StepTimeline
    kept: int
    """Steps to choose from: those that kept their spans, without the first two."""
    slowest_of_all: tuple[int, float]
    """The slowest step, whether it kept its spans or not, and its seconds."""
    problems: tuple[str, ...]
    """A sentence for everything in the folder that is damaged or missing."""

    @property
    def steps(self) -> dict[str, StepTimeline]:
        """The median step and the slowest one; a single one where they are the same."""
        both = {"median": self.median, "slowest": self.slowest}
        return both if self.median.step != self.slowest.step else {"median": self.median}


def totals(intervals: Sequence[Interval]) -> dict[Part, int]:
    """Nanoseconds by part."""
    return {part: sum(each.duration_ns for each in intervals if each.part == part) for part in PARTS}


def read_timeline(folder: Path) -> Timeline:
    """The median and the slowest step of a run, whether it finished or not."""
    indices, problems = read_indices(folder)
    refuse_without_spans(folder, indices, problems)
    candidates = kept_by_most(indices)
    steady = {step: seconds for step, seconds in candidates.items() if step >= WARM_UP_STEPS} or candidates
    middle = median_low(steady.values())
    median = next(step for step, seconds in steady.items() if seconds == middle)
    slowest = max(steady, key=lambda step: steady[step])
    return Timeline(
        read_step(indices, median),
        read_step(indices, slowest),
        len(steady),
        _slowest_of_all(indices),
        tuple(problems),
    )


def refuse_without_spans(folder: Path, indices: Sequence[StepIndex], problems: Sequence[str]) -> None:
    """An error for a run of which no step can be shown."""
    if not indices:
        raise ConfigError(
            problems[0] if problems else f"no step of the run in {folder} kept its spans",
            "The first step and every 20th keep theirs, with --trace all steps.",
        )


def _slowest_of_all(indices: Sequence[StepIndex]) -> tuple[int, float]:
    found: list[tuple[float, int]] = []
    for index in indices:
        steps, seconds = index.table[:, 0], index.seconds
        first = WARM_UP_STEPS if len(seconds) > WARM_UP_STEPS else 0
        place = first + int(seconds[first:].argmax())
        found.append((float(seconds[place]), int(steps[place])))
    seconds, step = max(found)
    return step, seconds


def read_step(indices: Sequence[StepIndex], step: int) -> StepTimeline:
    """A step of all workers that kept its spans."""
    having = [index for index in indices if step in index.kept]
    spans = {index.rank: index.spans(step) for index in having}
    met, members = joined(step, spans, max(index.workers for index in indices))
    last_ns = {meeting: max(arrived.values()) for meeting, arrived in members.items()}
    rows: list[Row] = []
    waits: dict[int, list[tuple[int, int]]] = {}
    for index in having:
        rank = index.rank
        calls = [(span, waiting_ns(span, last_ns[meeting])) for meeting, span in met[rank]]
        seconds = float(index.seconds[index.kept[step]])
        rows.append(Row(rank, _flattened(spans[rank], calls, round(seconds * 1e9)), seconds))
        waits[rank] = _waits(rank, met[rank], members)
    joins = [
        Join(str(span.name), members[meeting])
        for meeting, span in {meeting: span for rank in met for meeting, span in met[rank]}.items()
        if len(members[meeting]) > 1
    ]
    return StepTimeline(step, tuple(rows), tuple(joins), tuple(_path(spans, rows, waits)))


def joined(
    step: int, spans: Mapping[int, Sequence[Span]], workers: int
) -> tuple[dict[int, list[tuple[Meeting, Span]]], dict[Meeting, dict[int, int]]]:
    """The calls of each rank in a step with their meetings, and when each member arrived at each meeting."""
    everyone = range(max(workers, *(rank + 1 for rank in spans)))
    calls = {rank: [span for span in own if span.group] for rank, own in spans.items()}
    met = {rank: list(meetings(rank, {step: own}, everyone, spans)) for rank, own in calls.items()}
    return met, arrivals(met)


def _flattened(
    spans: Sequence[Span], calls: Sequence[tuple[Span, int]], step_ns: int
) -> tuple[Interval, ...]:
    """Intervals without gaps, from the start of the first span to the end of the step."""
    pieces = [
        Interval(span.start_ns, span.end_ns, OF_KIND.get(span.kind, "idle"), span.name)
        for span in spans
        if not span.group
    ]
    for span, waited_ns in calls:
        arrived_ns = span.start_ns + waited_ns
        pieces += [
            Interval(span.start_ns, arrived_ns, "wait", span.name),
            Interval(arrived_ns, span.end_ns, "move", span.name),
        ]
    start_ns = min((span.start_ns for span in spans), default=0)
    end_ns = max([start_ns + step_ns, *(span.end_ns for span in spans)])
    pieces = sorted(piece for piece in pieces if piece.duration_ns)
    edges = sorted({start_ns, end_ns, *(moment for piece in pieces for moment in piece[:2])})
    found: list[Interval] = []
    entered: list[
        tuple[int, int, Interval]
    ] = []  # a heap: the span that began last, and of these the shortest
    next_piece = 0
    for begin, end in pairwise(edges):
        while next_piece < len(pieces) and pieces[next_piece].start_ns <= begin:
            piece = pieces[next_piece]
            heappush(entered, (-piece.start_ns, piece.end_ns, piece))
            next_piece += 1
        while entered and entered[0][1] <= begin:
            heappop(entered)
        _, _, inner = entered[0] if entered else (0, 0, Interval(0, 0, "idle"))
        before = found[-1] if found else None
        if before and before[2:] == inner[2:]:
            found[-1] = before._replace(end_ns=end)
        else:
            found.append(inner._replace(start_ns=begin, end_ns=end))
    return tuple(found) or (Interval(start_ns, end_ns, "idle"),)


def _waits(
    rank: int, met: Sequence[tuple[Meeting, Span]], members: Mapping[Meeting, Mapping[int, int]]
) -> list[tuple[int, int]]:
    """The moments at which a worker's waits ended, each with the rank whose arrival ended it."""
    found: list[tuple[int, int]] = []
    for meeting, span in met:
        last = Join("", members[meeting]).last
        last_ns = members[meeting][last]
        if last != rank and span.start_ns < last_ns <= span.end_ns:
            found.append((last_ns, last))
    return found


def _path(
    spans: Mapping[int, Sequence[Span]], rows: Sequence[Row], waits: Mapping[int, Sequence[tuple[int, int]]]
) -> Iterator[PathPart]:
    """The critical path, from the end of the step to its start."""
    starts = {row.rank: row.intervals[0].start_ns for row in rows}
    ends = {rank: max((span.end_ns for span in own), default=starts[rank]) for rank, own in spans.items()}
    rank = max(ends, key=lambda rank: ends[rank])
    now = ends[rank]
    while earlier := [wait for wait in waits[rank] if starts[rank] < wait[0] < now]:
        last_ns, other = max(earlier)
        yield PathPart(rank, last_ns, now)
        rank, now = other, last_ns
    yield PathPart(rank, min(starts[rank], now), now)


def _between(intervals: Sequence[Interval], part: PathPart) -> Iterator[Interval]:
    for each in intervals:
        start_ns, end_ns = max(each.start_ns, part.start_ns), min(each.end_ns, part.end_ns)
        if start_ns < end_ns:
            yield each._replace(start_ns=start_ns, end_ns=end_ns)
