"""Where the workers' time went: their own work, moving bytes, waiting for each other; read from all ranks' events.

In a call of its group a worker can do nothing else: it is *blocked*. Before the last member has come to the call
nothing can be finished, so that part of being blocked is *waiting*, and whoever came last is to blame. The rest is
*moving*.

    rank 0  ─── own work ───┤· · · · · waiting · · · · ·│── moving ──┤── own work ───
    rank 1  ───────────────── own work ─────────────────┤── moving ──┤── own work ───

No barrier is added for this: it is computed afterwards, from the start times of all ranks, which share one clock as
long as they share one machine. How long a worker is blocked is known of every step; how that divides into waiting and
moving only of the steps whose calls were kept (every 20th, all with `--trace`), and what is known of those is taken for
all.

The first two steps are left out: libraries are still being loaded and buckets put in order, and one of them can last as
long as twenty others.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shoal.errors import ConfigError
from shoal.events.calls import Call
from shoal.events.file import Record, read_events
from shoal.report.findings import Measured, inside_run

WARM_UP_STEPS = 2
MESSAGES = ("send", "recv")
"""Calls between two members. Every other call is made by all members of its group, in the same order."""

Meeting = tuple[object, ...]
"""What calls of different members have in common if they belong together."""


@dataclass(frozen=True)
class OperationTime:
    """What one operation costs one worker in one step: means over the steps whose calls were kept."""

    operation: str
    calls: float
    num_bytes: float
    wait_s: float
    move_s: float


@dataclass(frozen=True)
class RankShares:
    """One worker's training time in seconds; as parts of the whole in `compute`, `move`, `wait` and `other`."""

    rank: int
    train_s: float
    compute_s: float
    """Forward, backward, update, and making batches."""
    move_s: float
    wait_s: float
    work_s: Measured
    """Its own work in one step: the median, and how much that scatters from step to step."""
    steps: int
    steps_kept: int
    """Steps that tell waiting from moving."""
    operations: tuple[OperationTime, ...]

    @property
    def compute(self) -> float:
        """The part of the time in its own work."""
        return self._part(self.compute_s)

    @property
    def move(self) -> float:
        """The part of the time in exchanges, after everyone had come."""
        return self._part(self.move_s)

    @property
    def wait(self) -> float:
        """The part of the time in which it waited for others to come."""
        return self._part(self.wait_s)

    @property
    def other(self) -> float:
        """The rest: the loop itself, and writing down what happens."""
        return max(0.0, 1.0 - self.compute - self.move - self.wait) if self.train_s else 0.0

    def _part(self, seconds: float) -> float:
        return seconds / self.train_s if self.train_s else 0.0


def communication(folder: Path) -> list[RankShares]:
    """The shares of every rank that left events in a run folder, in rank order.

    A world of one neither moves nor waits. Where a rank's events are missing, waiting for that rank counts as moving.
    """
    steps = {rank: _steps_of(path) for rank, path in _event_files(folder)}
    calls = {rank: {step.number: step.calls for step in own if step.kept} for rank, own in steps.items()}
    met = {rank: list(_meetings(rank, own, _pairs(calls))) for rank, own in calls.items()}
    last_ns = _last_arrivals(met.values())
    return [_shares(rank, steps[rank], met[rank], last_ns) for rank in steps]


class _Step(NamedTuple):
    number: int
    seconds: float
    compute_s: float | None
    """None where nothing was measured: on a GPU most steps are not."""
    exchange_s: float
    """In exchanges, waiting included."""
    blocked_s: float
    kept: bool
    calls: list[Call]


def _event_files(folder: Path) -> list[tuple[int, Path]]:
    found = [
        (re.fullmatch(r"events\.rank(\d+)\.jsonl", path.name), path) for path in folder.glob("events.rank*")
    ]
    files = sorted((int(match[1]), path) for match, path in found if match)
    if not files:
        raise ConfigError(f"{folder} is not a run folder: no worker left events in it")
    return files


def _steps_of(path: Path) -> list[_Step]:
    """The steps of one rank after warming up; what a resumed run did again counts once."""
    try:
        records = {record["step"]: record for record in read_events(path) if record["event"] == "step"}
    except ValueError as error:
        raise ConfigError(f"{path} is damaged: {error}") from None
    ordered = [records[number] for number in sorted(records)]
    ends_s = [0.0, *(record["seconds"] for record in ordered)]
    steps = [
        _step(record, end - start) for record, start, end in zip(ordered, ends_s, ends_s[1:], strict=False)
    ]
    steady = steps[WARM_UP_STEPS:]
    return steady if any(step.kept for step in steady) else steps


def _step(record: Record, seconds: float) -> _Step:
    totals = {kind: nanoseconds / 1e9 for kind, nanoseconds in record["totals_ns"].items()}
    blocked_s = record.get("blocked_ns", 0) / 1e9
    compute_s = totals.get("data", 0.0) + totals.get("compute", 0.0) if totals else None
    # An exchange is more than its calls (copies around them); a call may also stand outside any exchange.
    exchange_s = min(max(totals.get("move", 0.0), blocked_s), seconds)
    calls = [Call(*call) for call in record.get("calls", [])]
    return _Step(record["step"], seconds, compute_s, exchange_s, blocked_s, "calls" in record, calls)


def _pairs(calls: Mapping[int, Mapping[int, Sequence[Call]]]) -> dict[str, tuple[int, ...]]:
    """The groups of two among all groups, with the ranks of both members."""
    members: dict[str, set[int]] = {}
    for rank, steps in calls.items():
        for own in steps.values():
            for call in own:
                members.setdefault(call.group, set()).add(rank)
    return {group: tuple(sorted(ranks)) for group, ranks in members.items() if len(ranks) == 2}


def _meetings(
    rank: int, steps: Mapping[int, Sequence[Call]], pairs: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[Meeting, Call]]:
    """Every kept call of a rank with the meeting it belongs to.

    Collectives meet by their order within a step. So do messages between two members of a group of two, where nobody
    else can be meant; in larger groups all messages between two collectives are one meeting, such as a ring's.
    """
    for number, calls in steps.items():
        counts: dict[Meeting, int] = {}
        for call in sorted(calls, key=lambda call: (call.group, call.sequence)):
            if call.operation not in MESSAGES:
                kind: Meeting = (call.group, "all")
            elif call.group in pairs:
                sends = call.operation == "send"
                kind = (call.group, "from", rank if sends else sum(pairs[call.group]) - rank)
            else:
                yield (number, call.group, "messages", counts.get((call.group, "all"), 0)), call
                continue
            counts[kind] = counts.get(kind, 0) + 1
            yield (number, *kind, counts[kind]), call


def _last_arrivals(ranks: Iterable[Sequence[tuple[Meeting, Call]]]) -> dict[Meeting, int]:
    """When the last member came to each meeting."""
    last_ns: dict[Meeting, int] = {}
    for met in ranks:
        came_ns: dict[Meeting, int] = {}
        for meeting, call in met:
            came_ns[meeting] = min(came_ns.get(meeting, call.start_ns), call.start_ns)
        for meeting, start_ns in came_ns.items():
            last_ns[meeting] = max(last_ns.get(meeting, start_ns), start_ns)
    return last_ns


def _shares(
    rank: int, steps: Sequence[_Step], met: Sequence[tuple[Meeting, Call]], last_ns: Mapping[Meeting, int]
) -> RankShares:
    kept = [step.number for step in steps if step.kept]
    met = [(meeting, call) for meeting, call in met if meeting[0] in set(kept)]
    train_s, exchange_s = sum(step.seconds for step in steps), sum(step.exchange_s for step in steps)
    waiting_ns = sum(call.waiting_ns(last_ns[meeting]) for meeting, call in met)
    blocked_ns = sum(call.blocked_ns for _, call in met)
    wait_s = sum(step.blocked_s for step in steps) * (waiting_ns / blocked_ns if blocked_ns else 0.0)
    measured = [step for step in steps if step.compute_s is not None]
    measured_s = sum(step.seconds for step in measured)
    compute_s = sum(step.compute_s or 0.0 for step in measured) * (
        train_s / measured_s if measured_s else 0.0
    )
    return RankShares(
        rank,
        train_s,
        # Where a strategy is blocked in the midst of its computation, that time is not computation.
        min(compute_s, train_s - exchange_s),
        max(0.0, exchange_s - wait_s),
        wait_s,
        inside_run([step.compute_s or 0.0 for step in measured] or [0.0]),
        len(steps),
        len(kept),
        _operations(met, last_ns, len(kept)),
    )


def _operations(
    met: Sequence[tuple[Meeting, Call]], last_ns: Mapping[Meeting, int], num_steps: int
) -> tuple[OperationTime, ...]:
    """The calls by operation, as means over the steps."""
    by_name: dict[str, list[tuple[Call, int]]] = {}
    for meeting, call in met:
        by_name.setdefault(call.operation, []).append((call, call.waiting_ns(last_ns[meeting])))
    return tuple(
        OperationTime(
            name,
            len(calls) / num_steps,
            sum(call.num_bytes for call, _ in calls) / num_steps,
            sum(waiting for _, waiting in calls) / num_steps / 1e9,
            sum(call.blocked_ns - waiting for call, waiting in calls) / num_steps / 1e9,
        )
        for name, calls in sorted(by_name.items())
    )
