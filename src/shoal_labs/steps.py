"""Where the time of a step went on every worker: its own work, waiting for the others, moving.

A worker begins to exchange when its own gradients are ready. Until the last worker begins, nothing can be agreed on:
that is *waiting*, and the last worker to arrive causes it. From then until the exchange is over is *moving*: sending,
receiving, adding.

    rank 0  ──own work──┤· · · · waiting · · · ·├── moving ──┤
    rank 1  ────────────own work────────────────┤── moving ──┤

Nothing is added to a step to measure this: the spans of all workers are converted to rank 0's clock and compared
afterwards. On a GPU the begin and the end of an exchange are CUDA events: it begins when the device has computed the
gradients, not when the host asks for their sum.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from shoal.kit.runs import RunFolder, Span, StepRecord, read_events, steps_of

EXCHANGE = "exchange"
"""The spans of a step in which the workers agree: first on whether all gradients are finite, then on the gradients."""


@dataclass(frozen=True)
class RankStep:
    """One step of one worker, in milliseconds."""

    own_ms: float
    """Everything before the exchange and after it, delays included."""
    wait_ms: float
    move_ms: float
    encode_ms: float
    """Encoding and decoding of compressed gradients, in the exchange."""
    calls: Mapping[str, int]
    """How often each operation of the group was called to exchange gradients."""
    sent_bytes: int
    """In these calls: messages, and collectives as rings (`shoal.comm.costs`)."""

    @property
    def exchange_ms(self) -> float:
        """From the first call to the last result, encoding and decoding included."""
        return self.wait_ms + self.move_ms + self.encode_ms


Step = tuple[RankStep, ...]
"""One step of all workers, in rank order."""


def read_steps(run: Path, workers: int) -> list[Step]:
    """Every step of a run whose spans were all kept (`--trace`)."""
    ranks = [steps_of(read_events(RunFolder(run).events(rank))) for rank in range(workers)]
    return [_step(records) for records in zip(*ranks, strict=True)]


def _step(records: Sequence[StepRecord]) -> Step:
    last_ns = max(_exchanges(record)[0].start_ns for record in records)
    return tuple(_rank_step(record, last_ns) for record in records)


def _exchanges(record: StepRecord) -> list[Span]:
    return [span for span in record.spans or () if span.name == EXCHANGE]


def _rank_step(record: StepRecord, last_ns: int) -> RankStep:
    exchanges = _exchanges(record)
    start_ns, end_ns = exchanges[0].start_ns, exchanges[-1].end_ns
    # A worker that encodes neither waits nor moves.
    before_ms, after_ms = (_encoding_ms(record, *when) for when in ((start_ns, last_ns), (last_ns, end_ns)))
    calls = _calls_until(record.spans or (), after_ns=exchanges[-1].start_ns)
    return RankStep(
        own_ms=max(0.0, 1e3 * record.seconds - _ms(end_ns - start_ns)),
        wait_ms=_ms(last_ns - start_ns) - before_ms,
        move_ms=_ms(end_ns - last_ns) - after_ms,
        encode_ms=before_ms + after_ms,
        calls=Counter(call.name for call in calls),
        sent_bytes=sum(call.sent_bytes for call in calls),
    )


def _encoding_ms(record: StepRecord, start_ns: int, end_ns: int) -> float:
    """Encoding and decoding in an interval."""
    spans = [span for span in record.spans or () if span.kind == "encode"]
    return _ms(sum(max(0, min(span.end_ns, end_ns) - max(span.start_ns, start_ns)) for span in spans))


def _calls_until(spans: Sequence[Span], after_ns: int) -> list[Span]:
    """The calls whose result came after this time.

    On a GPU the time of an exchange is that of CUDA events, and calls are issued by the host, which may be ahead of the
    device; a result cannot be.
    """
    return [
        issue
        for issue, wait in pairwise(spans)
        if issue.issues_call and wait.sequence == issue.sequence and wait.end_ns > after_ns
    ]


def _ms(nanoseconds: int) -> float:
    return nanoseconds / 1e6
