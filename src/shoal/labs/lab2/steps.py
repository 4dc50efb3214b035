"""Where the time of a step went on every worker: its own work, waiting for the others, moving.

A worker begins to exchange when its own gradients are ready. Until the last worker begins, nothing can be agreed on:
that is *waiting*, and whoever comes last is to blame for it. From then until the exchange is over is *moving*: sending,
receiving, adding.

    rank 0  ──own work──┤· · · · waiting · · · ·├── moving ──┤
    rank 1  ────────────own work────────────────┤── moving ──┤

Nothing is added to a step to find this out: the workers of one machine have one clock, and their records are compared
afterwards.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.events.file import Record, read_events
from shoal.events.folder import RunFolder

EXCHANGE = "exchange"
"""The spans of a step in which the workers agree: first on whether all gradients are finite, then on the gradients."""
SPAN_NAME, SPAN_START, SPAN_END = 0, 3, 4
CALL_OPERATION, CALL_BYTES, CALL_START = 0, 1, 4


@dataclass(frozen=True)
class RankStep:
    """One step of one worker, in milliseconds."""

    own_ms: float
    """Everything before the exchange and after it, delays included."""
    wait_ms: float
    move_ms: float
    calls: Mapping[str, int]
    """How often each operation of the group was called to exchange gradients."""
    sent_bytes: int
    """In messages to other workers; a collective does not tell what it sends."""

    @property
    def exchange_ms(self) -> float:
        """From the first call to the last result."""
        return self.wait_ms + self.move_ms


Step = tuple[RankStep, ...]
"""One step of all workers, in rank order."""


def read_steps(run: Path, workers: int) -> list[Step]:
    """Every step of a run whose spans were all kept (`--trace`)."""
    folder = RunFolder(run)
    ranks = [_records(folder, rank) for rank in range(workers)]
    return [_step(records) for records in zip(*ranks, strict=True)]


def _records(folder: RunFolder, rank: int) -> list[tuple[Record, float]]:
    """The steps of one worker, each with the seconds it took."""
    records = [record for record in read_events(folder.events(rank)) if record["event"] == "step"]
    ends_s = [0.0, *(record["seconds"] for record in records)]
    return [(record, ends_s[number + 1] - ends_s[number]) for number, record in enumerate(records)]


def _step(records: Sequence[tuple[Record, float]]) -> Step:
    last = max(_exchanges(record)[0][SPAN_START] for record, _ in records)
    return tuple(_rank_step(record, seconds, last) for record, seconds in records)


def _exchanges(record: Record) -> list[Sequence[Any]]:
    return [span for span in record["spans"] if span[SPAN_NAME] == EXCHANGE]


def _rank_step(record: Record, seconds: float, last_ns: int) -> RankStep:
    spans = _exchanges(record)
    start_ns, end_ns = spans[0][SPAN_START], spans[-1][SPAN_END]
    calls = [call for call in record["calls"] if call[CALL_START] >= spans[-1][SPAN_START]]
    return RankStep(
        own_ms=max(0.0, 1e3 * seconds - _ms(end_ns - start_ns)),
        wait_ms=_ms(last_ns - start_ns),
        move_ms=_ms(end_ns - last_ns),
        calls=Counter(call[CALL_OPERATION] for call in calls),
        sent_bytes=sum(call[CALL_BYTES] for call in calls if call[CALL_OPERATION] == "send"),
    )


def _ms(nanoseconds: int) -> float:
    return nanoseconds / 1e6
