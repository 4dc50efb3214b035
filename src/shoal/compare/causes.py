"""Causes of slow steps in one run, each with its cost: the part of the training time that it takes.

A cause counts where the 99.9 % interval of the median of its cost over the steps lies above MATTERS. So noise seldom
looks like a cause, and a short run has none.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Literal, NamedTuple, get_args

from shoal.compare.comparison import ComparedRun
from shoal.config.conditions import shares_of
from shoal.events.file import Record
from shoal.events.spans import EVALUATION, SAVE
from shoal.report.communication import RankShares, StepKind
from shoal.report.facts import Work
from shoal.report.findings import Measured, exactly, higher
from shoal.report.paired import typical

MATTERS = 0.10
"""The part of the training time from which a cause gets a remark."""
SLOWER = 1.2
"""A worker is slow if its own work takes this many times as long as another's."""
MOST_OTHERS = 0.1
"""A worker does something alone if the others do at most this part of it."""
NEAR = 0.9
"""Memory is near its limit from this part on."""
MANY_CALLS, SMALL_CALL = 8, 2**16
"""So many calls in a step, and so few bytes in each, are better joined."""
SLOW_BYTES_PER_S = 125e6
"""A link is slow below 1 Gbit/s; small calls do not tell, because other delays count in them."""
FEWEST_CHECKS = 3
"""So often gradients are looked at before anything is said about them."""

Why = Literal["data", "compute", "rest", "batches"]


class Slow(NamedTuple):
    """A worker for which the others wait."""

    rank: int
    quick: int
    cost: float
    """How much longer its own work takes than the quickest worker's, as a part of the step."""
    why: Why
    """The kind of work in which the two differ most; `batches` if it has more samples."""
    slow_s: float
    """Its work of that kind in a step, or its samples."""
    quick_s: float


class Stall(NamedTuple):
    """What interrupts some steps."""

    rank: int
    """The worker that it takes longest."""
    is_alone: bool
    """Whether only this worker does it, and the others wait."""
    times: int
    seconds: float
    """Of one time."""
    cost: float


class Traffic(NamedTuple):
    """The exchanges of a step, means over the workers."""

    calls: float
    sent_bytes: float
    move_s: float

    @property
    def why(self) -> Literal["buckets", "link", "moves"]:
        """Many small calls, a slow link, or neither."""
        if self.sent_bytes < SMALL_CALL * self.calls:
            return "buckets" if self.calls >= MANY_CALLS else "moves"
        return "link" if self.sent_bytes < SLOW_BYTES_PER_S * self.move_s else "moves"


def part(entry: ComparedRun, kind: StepKind) -> Measured:
    """A part of a step, the mean over the workers: its median over the steps, and the interval of that."""
    return _typical_mean([rank.parts.get(kind, {}) for rank in entry.ranks])


def cost_of(part: Measured) -> float:
    """A part if it counts; 0 if it does not, or if its steps do not tell."""
    return part.value if higher(part, exactly(MATTERS)) == "holds" else 0.0


class Apart(NamedTuple):
    """The workers with the longest and the shortest work of their own, if the others wait for the first."""

    slow: RankShares
    quick: RankShares
    steps: Sequence[int]
    """In which they were compared."""
    cost: float
    ratio: float
    """How many times as long the work of the slow one takes."""


def slow_among(ranks: Sequence[RankShares]) -> Apart | None:
    """The worker whose own work is the longest, if the others wait for it in most steps."""
    stalled = {step for rank in ranks for steps in rank.facts.stalls_s.values() for step in steps}
    steps = sorted(set(ranks[0].facts.own_s).intersection(*(rank.facts.own_s for rank in ranks)) - stalled)
    if len(ranks) < 2 or not steps:
        return None
    own = {rank.rank: median(rank.facts.own_s[step] for step in steps) for rank in ranks}
    slow, quick = max(ranks, key=lambda rank: own[rank.rank]), min(ranks, key=lambda rank: own[rank.rank])
    apart = [
        (slow.facts.own_s[step] - quick.facts.own_s[step]) / slow.facts.seconds[step]
        for step in steps
        if slow.facts.seconds[step] > 0
    ]
    cost = cost_of(typical(apart)) if apart else 0.0
    if not cost or own[slow.rank] < SLOWER * own[quick.rank]:
        return None
    return Apart(slow, quick, steps, cost, own[slow.rank] / max(own[quick.rank], 1e-9))


def slow_worker(entry: ComparedRun) -> Slow | None:
    """The slow worker of a run, and why it is slow."""
    apart = slow_among(entry.ranks)
    if apart is None:
        return None
    slow, quick, steps, cost, _ = apart
    work = {
        kind: (_median_work(slow, kind, steps), _median_work(quick, kind, steps)) for kind in get_args(Work)
    }
    why: Why = max(work, key=lambda kind: work[kind][0] - work[kind][1])
    numbers = work[why]
    rows = [_rows(entry, rank, steps) for rank in (slow, quick)]
    if (
        why == "compute"
        and rows[0] >= SLOWER * rows[1] > 0
        and numbers[0] * rows[1] < 1.5 * numbers[1] * rows[0]
    ):
        why, numbers = "batches", (rows[0], rows[1])
    return Slow(slow.rank, quick.rank, cost, why, *numbers)


def _rows(entry: ComparedRun, rank: RankShares, steps: Sequence[int]) -> float:
    """A worker's samples of a step, where they are known: in a profile, or by the shares that a run asks for."""
    shares = shares_of(entry.config.launch.bottleneck, entry.workers)
    size = entry.config.train.batch_size
    if not entry.is_profile and shares and isinstance(size, int):
        return shares[rank.rank] * size
    return median(rank.facts.rows.get(step, 0.0) for step in steps)


def _median_work(rank: RankShares, kind: Work, steps: Sequence[int]) -> float:
    return median(rank.facts.work_s(kind, step) for step in steps)


def loading_cost(entry: ComparedRun) -> float:
    """The time in which all workers wait for their data; a single slow worker is a cause of its own."""
    slow = slow_worker(entry)
    return 0.0 if slow and slow.why == "data" else cost_of(part(entry, "data"))


def evaluating_alone(entry: ComparedRun) -> Stall | None:
    """One worker evaluates, and the others wait."""
    found = _stall([rank.facts.stalls_s.get(EVALUATION, {}) for rank in entry.ranks], entry)
    return found if found and found.is_alone and entry.workers > 1 else None


def saving(entry: ComparedRun) -> Stall | None:
    """Checkpoints, of one worker or of all."""
    if entry.is_profile:
        return _stall([rank.facts.stalls_s.get(SAVE, {}) for rank in entry.ranks], entry)
    found = [dict(enumerate(rank.facts.checkpoints_s)) for rank in entry.ranks]
    return _stall(found, entry, outside_steps=True)


def _stall(
    by_rank: Sequence[Mapping[int, float]], entry: ComparedRun, outside_steps: bool = False
) -> Stall | None:
    """Stalls of each worker, if they take long; `outside_steps` if the training time does not count them."""
    totals = [sum(seconds.values()) for seconds in by_rank]
    most = max(range(len(totals)), key=totals.__getitem__)
    if not totals[most]:
        return None
    found, others = by_rank[most], max([*totals[:most], *totals[most + 1 :]], default=0.0)
    each = typical([*found.values()])
    total_s = entry.ranks[most].train_s + totals[most] * outside_steps
    part = Measured(
        min(1.0, len(found) * each.value / total_s),
        len(found) * each.spread / total_s,
        each.basis,
        each.count,
    )
    cost = cost_of(part)
    is_alone = others <= MOST_OTHERS * totals[most]
    return Stall(entry.ranks[most].rank, is_alone, len(found), each.value, cost) if cost else None


def synchronising(entry: ComparedRun) -> tuple[float, float]:
    """How often a step waits for the GPU, and the cost."""
    parts = [
        {
            step: rank.facts.synchronised_s.get(step, 0.0) / seconds
            for step, seconds in rank.facts.seconds.items()
        }
        for rank in entry.ranks
    ]
    calls = [sum(rank.facts.synchronised.values()) / max(rank.steps, 1) for rank in entry.ranks]
    return fmean(calls), cost_of(_typical_mean(parts))


def _typical_mean(workers: Sequence[Mapping[int, float]]) -> Measured:
    common = sorted(set(workers[0]).intersection(*workers[1:]))
    if not common:
        return Measured(0.0, 0.0, "none", 0)
    return typical([fmean(steps[step] for steps in workers) for step in common])


def unused_parameters(entry: ComparedRun) -> tuple[list[str], bool]:
    """Parameters that had no gradient on any worker, and whether DDP searches for such parameters without need."""
    found = [rank.facts.parameters for rank in entry.ranks]
    if not all(each.get("checks", 0) >= FEWEST_CHECKS for each in found):
        return [], False
    first, *others = ([*each["unused"]] for each in found)
    everywhere = [name for name in first if all(name in names for names in others)]
    return everywhere, found[0]["searches"] and not any(each["unused"] for each in found)


def nearest_memory(entry: ComparedRun) -> tuple[int, Record] | None:
    """The worker that is nearest to a limit of memory, if it is near, and the limit."""
    found = [(rank.rank, rank.facts.memory) for rank in entry.ranks if rank.facts.memory.get("limit")]
    rank, limit = max(found, key=lambda each: each[1]["used"] / each[1]["limit"], default=(0, {}))
    return (rank, limit) if limit and limit["used"] >= NEAR * limit["limit"] else None


def traffic(entry: ComparedRun) -> Traffic:
    """What the workers exchange in a step."""
    operations = [rank.operations for rank in entry.ranks]
    return Traffic(
        *(
            fmean(sum(getattr(each, name) for each in own) for own in operations)
            for name in ("calls", "sent_bytes", "move_s")
        )
    )
