"""The state of a run at one moment, as numbers: the same for the page, the terminal and tests."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, get_args

import numpy as np

from shoal.compare.causes import slow_among
from shoal.compare.why_slow import divides_model
from shoal.config.schema import RunConfig
from shoal.errors import ShoalError
from shoal.events.file import Record
from shoal.events.steps import StepRecord
from shoal.report.communication import WARM_UP_STEPS, RankShares, shares_of
from shoal.report.finished_runs import Array, Curve, extremes
from shoal.report.step_index import COLUMNS, StepIndex, kept_by_most
from shoal.report.timeline import StepTimeline, read_step
from shoal.watch.follow import RECENT, FollowedRun, FollowedWorker
from shoal.watch.processes import memory_of

State = Literal["failed", "training", "evaluating", "waiting", "starting", "gone", "stopped", "finished"]
STATES: tuple[State, ...] = get_args(State)
"""A run has the first of these that one of its workers has."""
ENDS: dict[str, State] = {"completed": "finished", "interrupted": "stopped"}
"""By the status of the event that ends a worker."""
WAITS_S, WAITS_STEPS = 5.0, 10
"""A worker waits if nothing was written for so long: so many seconds, and so many of its steps."""
SMOOTHED_OVER = 10
MOST_POINTS = 300
"""Of a curve: of more steps, each group has its smallest and its largest loss."""
SPEED_POINTS, FEWEST_STEPS = 120, 5


@dataclass(frozen=True)
class WorkerRow:
    """One worker at this moment."""

    rank: int
    state: State
    steps: int
    """Steps it has made."""
    silent_s: float
    """Since it last wrote."""
    step_s: float | None
    """Of its recent steps, the median; None before there are any."""
    shares: RankShares | None
    """Where the time of its recent steps went."""
    memory: int | None
    """Resident bytes; None if unknown."""
    slower: float = 0.0
    """How many times as long its own work takes as the quickest worker's, if it is slow."""


@dataclass(frozen=True)
class Curves:
    """The curves of a run, with few enough points to draw."""

    name: str
    steps: Array
    loss: Array
    """Smoothed."""
    raw: Array
    """The losses themselves; of a long run the extremes."""
    validation_steps: Array
    validation: Array
    speed_steps: Array
    samples_per_s: Array


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment."""

    state: State
    steps: int
    total_steps: int | None
    loss: float | None
    validation: Record | None
    """The newest one."""
    samples_per_s: float | None
    seconds: float
    """Of training."""
    workers: tuple[WorkerRow, ...]
    curves: Curves
    events: tuple[tuple[int, Record], ...]
    """With the rank that wrote each."""
    output: tuple[tuple[int, str], ...]
    problems: tuple[str, ...]
    timeline_step: int | None
    """The newest step of which most workers kept their spans."""

    @property
    def left_s(self) -> float | None:
        """How long the rest takes at the speed so far."""
        if self.state not in ("training", "waiting") or not self.total_steps or not self.steps:
            return None
        return self.seconds / self.steps * (self.total_steps - self.steps)

    @property
    def slow(self) -> tuple[WorkerRow, ...]:
        """The slow workers, the slowest first."""
        return tuple(sorted((row for row in self.workers if row.slower), key=lambda row: -row.slower))


def snapshot(run: FollowedRun, now_s: float | None = None) -> Snapshot:
    """The run as far as it was read."""
    now_s = time.time() if now_s is None else now_s
    workers = list(run.workers.values())
    steps = {worker.rank: worker.recent_steps() for worker in workers if len(worker.index.rows) > COLUMNS}
    shares, slower = _times(run.config, steps)
    total = next((worker.start["total_steps"] for worker in workers if "total_steps" in worker.start), None)
    rows = [_row(worker, steps.get(worker.rank, []), shares, slower, total, now_s) for worker in workers]
    first = next((worker for worker in workers if len(worker.index.rows)), None)
    table = np.array(first.index.rows).reshape(-1, COLUMNS) if first else np.empty((0, COLUMNS))
    curves = _curves(run.folder.path.resolve().name, table, first.validations if first else [])
    events = [(worker.rank, event) for worker in workers for event in worker.events]
    newest = [worker.index.newest(RECENT) for worker in workers if len(worker.index.rows)]
    kept = kept_by_most(newest)
    states: list[State] = [row.state for row in rows]
    return Snapshot(
        state=min(states, key=STATES.index) if states else "starting",
        steps=max((row.steps for row in rows), default=0),
        total_steps=total,
        loss=float(curves.loss[-1]) if len(curves.loss) else None,
        validation=first.validations[-1] if first and first.validations else None,
        samples_per_s=_speed(newest),
        seconds=float(table[-1, 1]) if len(table) else 0.0,
        workers=tuple(rows),
        curves=curves,
        events=tuple(events),
        output=tuple(run.output()),
        problems=tuple(run.problems),
        timeline_step=max(kept, default=None),
    )


def timeline_of(run: FollowedRun, step: int) -> StepTimeline | None:
    """A recent step of all workers; None if it cannot be read, which the folder's problems say."""
    indices = [worker.index.newest(RECENT) for worker in run.workers.values() if len(worker.index.rows)]
    try:
        return read_step(indices, step)
    except (OSError, ShoalError, KeyError, ValueError):
        return None


def _times(
    config: RunConfig | None, steps: Mapping[int, Sequence[StepRecord]]
) -> tuple[dict[int, RankShares], dict[int, float]]:
    """Where the time of the recent steps went, by rank; and how much slower than the quickest the slow ranks are."""
    steady = {
        rank: [step for step in own if step.step >= WARM_UP_STEPS] or own
        for rank, own in steps.items()
        if own
    }
    if not steady:
        return {}, {}
    found = {each.rank: each for each in shares_of(steady, max(steady) + 1, {})}
    most = slow_among([*found.values()])
    if most is None or (config is not None and divides_model(config)):
        return found, {}
    apart = {rank: slow_among([each, most.quick]) for rank, each in found.items() if each is not most.quick}
    return found, {rank: each.ratio for rank, each in apart.items() if each and each.slow.rank == rank}


def _row(
    worker: FollowedWorker,
    steps: Sequence[StepRecord],
    shares: Mapping[int, RankShares],
    slower: Mapping[int, float],
    total: int | None,
    now_s: float,
) -> WorkerRow:
    made = int(worker.index.rows[-COLUMNS]) + 1 if len(worker.index.rows) else 0
    step_s = median(step.seconds for step in steps) if steps else None
    silent_s = max(0.0, now_s - worker.changed_s)
    memory = memory_of(worker.start) if not worker.end else None
    is_silent = silent_s > max(WAITS_S, WAITS_STEPS * (step_s or 0.0))
    state: State = "training"
    if worker.end:
        state = (
            "failed" if worker.end["event"] == "failed" else ENDS.get(worker.end.get("status", ""), "stopped")
        )
    elif memory == "gone":
        state = "gone"
    elif total and made >= total:
        state = "evaluating"
    elif is_silent:
        state = "waiting"
    elif not made:
        state = "starting"
    occupied = None if memory == "gone" else memory
    slow = slower.get(worker.rank, 0.0)
    return WorkerRow(worker.rank, state, made, silent_s, step_s, shares.get(worker.rank), occupied, slow)


def _speed(newest: Sequence[StepIndex]) -> float | None:
    """Samples per second in the recent steps, of all workers together."""
    rates: list[float] = []
    for index in newest:
        seconds, samples = index.table[:, 1], index.table[:, 4]
        if len(seconds) > 1 and seconds[-1] > seconds[0]:
            rates.append(float(samples[1:].sum() / (seconds[-1] - seconds[0])))
    if not rates or not np.isfinite(rates).all():
        return None
    # Workers that take turns record their own steps; others record the samples of all.
    first, *others = (set(index.table[:, 0].tolist()) for index in newest)
    takes_turns = bool(others) and all(first.isdisjoint(each) for each in others)
    return sum(rates) if takes_turns else rates[0]


def _curves(name: str, table: Array, validations: Sequence[Record]) -> Curves:
    numbers, seconds, samples, losses = table[:, 0], table[:, 1], table[:, 4], table[:, 5]
    has_loss = len(losses) > 0 and bool(np.isfinite(losses).any())
    chosen = extremes(losses, MOST_POINTS) if has_loss else np.empty(0, dtype=np.intp)
    smoothed = Curve(numbers, numbers, seconds, losses).smoothed(SMOOTHED_OVER) if has_loss else losses
    ends = (
        np.unique(np.linspace(0, max(len(table) - 1, 0), SPEED_POINTS + 1).astype(int))
        if len(table)
        else chosen
    )
    every = max(1, -(-FEWEST_STEPS * len(ends) // max(len(table), 1)))
    ends = ends[::every]
    total = np.cumsum(samples)
    rates = np.diff(total[ends]) / np.maximum(np.diff(seconds[ends]), 1e-9)
    valid = [each for each in validations if each.get("loss") is not None]
    return Curves(
        name,
        numbers[chosen],
        smoothed[chosen],
        losses[chosen],
        np.array([each["step"] for each in valid], dtype=np.float64),
        np.array([each["loss"] for each in valid], dtype=np.float64),
        numbers[ends[1:]],
        rates,
    )
