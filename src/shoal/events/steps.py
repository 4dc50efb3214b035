"""The steps of one worker, read from the records of its event file."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from shoal.events.clocks import ClockOffset, to_rank0_clock
from shoal.events.file import Record
from shoal.events.spans import LANE, Span


class StepRecord(NamedTuple):
    """One step of one worker."""

    step: int
    seconds: float
    """Its duration."""
    totals_ns: dict[str, int]
    """Time by kind, without group calls."""
    blocked_ns: int
    """Time in group calls."""
    spans: tuple[Span, ...] | None
    """All spans of the step, on rank 0's clock; None if they were not kept."""
    sent_bytes: int | None = None
    """Bytes that left the worker; None in runs of older versions, which counted otherwise."""
    mapped_bytes: int = 0
    """How many of them did not travel."""
    stalls_ns: dict[str, int] = {}  # noqa: RUF012 (never written)
    """Evaluation and saving inside the step, by name (profiles)."""
    synchronised: int = 0
    """How often the host waited for its GPU (profiles)."""
    synchronised_ns: int = 0
    """How long."""
    rows: int = 0
    """Samples of this worker, where a profile knows them."""

    @property
    def compute_s(self) -> float:
        """Time in forward, backward and update, and in making batches."""
        return (self.totals_ns.get("data", 0) + self.totals_ns.get("compute", 0)) / 1e9

    @property
    def idle_s(self) -> float:
        """Time in calls of functions on other workers, or between such calls, less what this worker computed in it."""
        idle_s = (self.totals_ns.get("idle", 0) + self.totals_ns.get("wait", 0)) / 1e9
        return max(0.0, min(idle_s, self.seconds - self.compute_s))

    @property
    def exchange_s(self) -> float:
        """Time in exchanges, waiting included.

        An exchange is more than its calls, for example copies around them; and there are calls outside of exchanges.
        """
        return min(max(self.totals_ns.get("move", 0), self.blocked_ns) / 1e9, self.seconds)


def steps_of(records: Sequence[Record]) -> list[StepRecord]:
    """The steps of a run in order; a step that a resumed run repeated counts once."""
    steps: list[StepRecord] = []
    ended_s = 0.0
    for attempt in _attempts(settled(records)):
        convert = to_rank0_clock([ClockOffset(**record["clock"]) for record in attempt if "clock" in record])
        for record in attempt:
            if record["event"] == "step":
                seconds, ended_s = record["seconds"] - ended_s, record["seconds"]
                steps.append(step_of(record, seconds, convert))
    return steps


def step_of(record: Record, seconds: float, convert: Callable[[int], int]) -> StepRecord:
    """The step of a record, which took so many seconds."""
    times, waited_ns = record.get("synchronised", (0, 0))
    return StepRecord(
        record["step"],
        seconds,
        record["totals_ns"],
        record.get("blocked_ns", 0),
        tuple(spans_in(record, convert)) if "spans" in record else None,
        record.get("sent_bytes"),
        record.get("mapped_bytes", 0),
        record.get("stalls_ns", {}),
        times,
        waited_ns,
        record.get("rows", 0),
    )


def settled(records: Sequence[Record]) -> list[Record]:
    """The records without what a resumed run repeated: a start at step s cancels everything from s on."""
    kept: list[Record] = []
    for record in records:
        if record["event"] == "start":
            first = record["step"]
            kept = [
                old
                for old in kept
                if not (old["event"] == "step" and old["step"] >= first)
                and not (old["event"] == "validation" and old["step"] > first)
            ]
        kept.append(record)
    return kept


def _attempts(records: Sequence[Record]) -> list[list[Record]]:
    """The records from each start to the next: in each of them the worker may have had another clock."""
    attempts: list[list[Record]] = [[]]
    for record in records:
        if record["event"] == "start":
            attempts.append([])
        attempts[-1].append(record)
    return attempts


def spans_in(record: Record, convert: Callable[[int], int]) -> Iterator[Span]:
    """The spans of a step's record, their times converted to rank 0's clock."""
    rows: list[Sequence[Any]] = [*record["spans"]]
    # Older event files hold each call as one row of its own form.
    for name, num_bytes, group, sequence, start_ns, issued_ns, wait_ns, end_ns in record.get("calls", ()):
        rows.append((name, "move", LANE, start_ns, issued_ns, num_bytes, group, sequence))
        rows.append((name, "wait", LANE, wait_ns, end_ns, 0, group, sequence))
    for name, kind, lane, start_ns, end_ns, *call in rows:
        yield Span(record["step"], name, kind, lane, convert(start_ns), convert(end_ns), *call)
