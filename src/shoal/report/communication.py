"""The workers' time, divided into computing, encoding, moving data and waiting, from the events of all ranks.

In a group call a worker is *blocked*: it can do nothing else. No call can finish before its last member has arrived, so
blocked time before that moment is *waiting*. The rest of it is *moving*. A worker that has called a function of another
one (RPC) waits, too. What a codec does to gradients before and after they move is *encoding*.

    rank 0  ──── compute ───┤· · · · · waiting · · · · ·│── moving ──┤── compute ────
    rank 1  ────────────────── compute ─────────────────┤── moving ──┤── compute ────

This adds no barrier to a run: it is computed afterwards from the start times of all ranks, converted to rank 0's clock.
The blocked time of every step is known. Its division into waiting and moving is known for the steps that kept their
spans (every 20th step, all steps with `--trace`), and is applied to all steps.

The first two steps are left out: libraries are loaded and buckets are planned in them, and one of them can take as long
as twenty others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from shoal.events.file import Record, read_events
from shoal.events.spans import Span
from shoal.events.steps import StepRecord, steps_of
from shoal.report.facts import RankFacts, facts_of
from shoal.report.findings import Measured, inside_run
from shoal.report.meetings import arrivals, event_files, meetings, waiting_ns
from shoal.report.step_index import COLUMNS, StepIndex, read_index

WARM_UP_STEPS = 2
MOST_STEPS, WINDOW = 5_000, 200
"""Of longer runs the shares are computed from windows of so many steps, which have about so many steps together."""
SECONDS = ("train_s", "compute_s", "move_s", "wait_s", "encode_s", "data_s")
"""The parts of `RankShares` that grow with the number of steps."""
StepKind = Literal["communication", "exchange", "encode", "wait", "move", "data"]
"""Parts of one step. Exchange is wait and move, known for every step; communication is exchange and encode."""


@dataclass(frozen=True)
class OperationTime:
    """The cost of one operation to one worker in one step: means over the steps that kept their spans."""

    operation: str
    calls: float
    sent_bytes: float
    wait_s: float
    move_s: float


@dataclass(frozen=True)
class RankShares:
    """The training time of one worker in seconds; `compute`, `encode`, … and `other` are fractions of it."""

    rank: int
    train_s: float
    compute_s: float
    """Forward, backward, update, and making batches."""
    move_s: float
    wait_s: float
    work_s: Measured
    """Computing time of one step: the median and its spread over the steps."""
    steps: int
    steps_kept: int
    """Steps that kept their spans."""
    operations: tuple[OperationTime, ...]
    encode_s: float = 0.0
    """Encoding and decoding of compressed gradients."""
    sent_bytes: int | None = None
    """Bytes that left the worker in all steps; None in runs of older versions, which counted otherwise."""
    mapped_bytes: int = 0
    """How many of them did not travel."""
    data_s: float = 0.0
    """The part of the computing time in which batches were made or loaded."""
    parts: Mapping[StepKind, Mapping[int, float]] = field(default_factory=dict[StepKind, Mapping[int, float]])
    """Fractions of single steps, by kind and step: how much the shares scatter."""
    facts: RankFacts = field(default_factory=RankFacts)
    """What its single steps say."""

    @property
    def compute(self) -> float:
        """The fraction of the time spent computing."""
        return self._fraction(self.compute_s)

    @property
    def data(self) -> float:
        """The fraction of the time spent making or loading batches, which is a part of computing."""
        return min(self._fraction(self.data_s), self.compute)

    @property
    def with_data(self) -> dict[str, float]:
        """All time in five parts, computing without making or loading batches."""
        parts = {"compute": self.compute - self.data, "data": self.data, "move": self.move, "wait": self.wait}
        return parts | {"idle": self.other}

    @property
    def encode(self) -> float:
        """The fraction of the time spent encoding and decoding gradients."""
        return self._fraction(self.encode_s)

    @property
    def move(self) -> float:
        """The fraction of the time spent in exchanges after all members had arrived."""
        return self._fraction(self.move_s)

    @property
    def wait(self) -> float:
        """The fraction of the time spent waiting for other members to arrive."""
        return self._fraction(self.wait_s)

    @property
    def other(self) -> float:
        """The rest: the loop itself and writing events."""
        parts = self.compute + self.encode + self.move + self.wait
        return max(0.0, 1.0 - parts) if self.train_s else 0.0

    @property
    def own(self) -> float:
        """The fraction outside of exchanges: computing, encoding and the rest."""
        return self.compute + self.encode + self.other

    def _fraction(self, seconds: float) -> float:
        return seconds / self.train_s if self.train_s else 0.0


def communication(folder: Path) -> list[RankShares]:
    """The shares of every rank with an event file in the run folder, in rank order.

    In a world of one they contain neither moving nor waiting. If a rank's event file is missing, waiting for that rank
    counts as moving.
    """
    files = event_files(folder)
    indices = {rank: read_index(rank, path) for rank, path in files}
    is_long = any(len(index.rows) > COLUMNS * MOST_STEPS for index in indices.values())
    if is_long and not any(index.problem for index in indices.values()):
        return _of_long_run(indices)
    found: dict[int, list[StepRecord]] = {}
    others: dict[int, list[Record]] = {}
    for rank, path in files:
        records = read_events(path)
        found[rank] = steps_of(records)
        others[rank] = [record for record in records if record["event"] != "step"]
    # A parameter server makes no steps.
    steps = {rank: _without_warm_up(own) for rank, own in found.items() if own or rank == 0}
    shares: list[RankShares] = []
    for of_rank in shares_of(steps, max(rank for rank, _ in files) + 1, others):
        own = found[of_rank.rank]
        sent = [step.sent_bytes for step in own if step.sent_bytes is not None]
        sent_bytes = sum(sent) if len(sent) == len(own) else None
        mapped_bytes = sum(step.mapped_bytes for step in own)
        shares.append(replace(of_rank, sent_bytes=sent_bytes, mapped_bytes=mapped_bytes))
    return shares


def _of_long_run(indices: Mapping[int, StepIndex]) -> list[RankShares]:
    """The shares from windows of steps at equal distances, the same on every rank; seconds and bytes of all steps.

    All steps of a window, because some strategies exchange every so many steps.
    """
    longest = max(len(index.table) for index in indices.values())
    every = -(-longest // MOST_STEPS)
    steps: dict[int, list[StepRecord]] = {}
    for rank, index in indices.items():
        numbers = index.table[:, 0]
        is_chosen = (numbers // WINDOW % every == every // 2) & (numbers >= WARM_UP_STEPS)
        if len(numbers) or rank == 0:
            steps[rank] = index.steps_in(np.flatnonzero(is_chosen).tolist())
    shares: list[RankShares] = []
    others = {rank: index.events for rank, index in indices.items()}
    for of_rank in shares_of(steps, max(indices) + 1, others):
        table, seconds = indices[of_rank.rank].table, indices[of_rank.rank].seconds
        steady = table[:, 0] >= WARM_UP_STEPS
        train_s, sent, mapped = float(seconds[steady].sum()), table[:, 7].sum(), np.nansum(table[:, 8])
        larger = train_s / of_rank.train_s if of_rank.train_s else 1.0
        parts = {name: larger * getattr(of_rank, name) for name in SECONDS}
        numbers = {"steps": int(steady.sum()), "steps_kept": int(table[steady, 6].sum())}
        numbers |= {"sent_bytes": None if np.isnan(sent) else int(sent), "mapped_bytes": int(mapped)}
        shares.append(replace(of_rank, **parts, **numbers))
    return shares


def shares_of(
    steps: Mapping[int, Sequence[StepRecord]], workers: int, others: Mapping[int, Sequence[Record]]
) -> list[RankShares]:
    """The shares of each rank in these steps, without the bytes that were sent; `others` are its other events."""
    calls = {
        rank: {step.step: [span for span in step.spans or () if span.group] for step in own}
        for rank, own in steps.items()
    }
    met = {rank: list(meetings(rank, own, range(workers), calls)) for rank, own in calls.items()}
    last_ns = {meeting: max(members.values()) for meeting, members in arrivals(met).items()}
    shares: list[RankShares] = []
    for rank, own in met.items():
        waited = [(span, waiting_ns(span, last_ns[meeting])) for meeting, span in own]
        facts = facts_of(others.get(rank, ()), steps[rank])
        shares.append(replace(_shares(rank, steps[rank], waited), facts=facts))
    return shares


def _without_warm_up(steps: list[StepRecord]) -> list[StepRecord]:
    steady = steps[WARM_UP_STEPS:]
    return steady if any(step.spans is not None for step in steady) else steps


def _shares(rank: int, steps: Sequence[StepRecord], waited: Sequence[tuple[Span, int]]) -> RankShares:
    """The shares of one rank, given the spans of its calls and how long it waited in each."""
    kept = sum(step.spans is not None for step in steps)
    train_s, exchange_s = sum(step.seconds for step in steps), sum(step.exchange_s for step in steps)
    waiting_ns = sum(waiting for _, waiting in waited)
    blocked_ns = sum(span.duration_ns for span, _ in waited)
    blocked_s = sum(step.blocked_ns / 1e9 for step in steps)
    wait_s = blocked_s * (waiting_ns / blocked_ns if blocked_ns else 0.0)
    measured = [step for step in steps if step.totals_ns]  # on a GPU most steps are not
    measured_s = sum(step.seconds for step in measured)
    compute_s = sum(step.compute_s for step in measured) * (train_s / measured_s if measured_s else 0.0)
    encode_s = sum(step.totals_ns.get("encode", 0) for step in steps) / 1e9
    # If a strategy is blocked in the middle of its computation, that time is not computation.
    compute_s = min(compute_s, train_s - exchange_s)
    # A step may have computed for longer than it took: older runs over RPC counted evaluations.
    idle_s = min(sum(step.idle_s for step in steps), train_s - exchange_s - compute_s)
    return RankShares(
        rank,
        train_s,
        compute_s,
        max(0.0, exchange_s - wait_s),
        wait_s + idle_s,
        inside_run([step.compute_s for step in measured] or [0.0]),
        len(steps),
        kept,
        _operations(waited, kept),
        min(encode_s, train_s - exchange_s - compute_s - idle_s),
        data_s=sum(step.totals_ns.get("data", 0) for step in measured) / 1e9 * (train_s / measured_s)
        if measured_s
        else 0.0,
        parts=_parts(measured, waited),
    )


def _parts(
    steps: Sequence[StepRecord], waited: Sequence[tuple[Span, int]]
) -> dict[StepKind, dict[int, float]]:
    """The fractions of each step; `wait` and `move` only of the steps that kept their spans."""
    waiting_ns: dict[int, int] = {}
    for span, waiting in waited:
        waiting_ns[span.step] = waiting_ns.get(span.step, 0) + waiting
    parts: dict[StepKind, dict[int, float]] = {kind: {} for kind in get_args(StepKind)}
    for step in steps:
        if step.seconds <= 0:
            continue
        exchange_s, idle_s = step.exchange_s, step.idle_s
        encode_s = step.totals_ns.get("encode", 0) / 1e9
        of_step: dict[StepKind, float] = {"exchange": exchange_s + idle_s, "encode": encode_s}
        of_step["communication"] = exchange_s + idle_s + encode_s
        of_step["data"] = step.totals_ns.get("data", 0) / 1e9
        if step.spans is not None:
            wait_s = min(waiting_ns.get(step.step, 0) / 1e9, exchange_s)
            of_step |= {"wait": wait_s + idle_s, "move": exchange_s - wait_s}
        for kind, seconds in of_step.items():
            parts[kind][step.step] = min(1.0, seconds / step.seconds)
    return parts


def _operations(waited: Sequence[tuple[Span, int]], num_steps: int) -> tuple[OperationTime, ...]:
    """The calls by operation, as means over the steps."""
    by_name: dict[str, list[tuple[Span, int]]] = {}
    for span, waited_ns in waited:
        by_name.setdefault(span.name, []).append((span, waited_ns))
    return tuple(
        OperationTime(
            name,
            sum(span.issues_call for span, _ in spans) / num_steps,
            sum(span.sent_bytes for span, _ in spans) / num_steps,
            sum(waiting_ns for _, waiting_ns in spans) / num_steps / 1e9,
            sum(span.duration_ns - waiting_ns for span, waiting_ns in spans) / num_steps / 1e9,
        )
        for name, spans in sorted(by_name.items())
    )
