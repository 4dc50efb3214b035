"""The numbers that the findings rest on, read from run folders alone."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import torch
from torch import Tensor

from shoal.kit.division import load
from shoal.kit.findings import Measured, Paired, by_rounds, inside_run
from shoal.kit.runs import Curve, RunFolder, curve_of, read_events, read_run
from shoal.kit.training import ALGORITHMS, Group, read_model, run_threads, sends
from shoal_labs.lab2.averaging import ALL, BRANCHES, COURSE, MESSAGES, calls_of
from shoal_labs.lab2.plan import BATCH_SIZE, CONDITIONS, CONTESTS, FAULTS, LEARNING, RULES, TURNS, Lab2Plan
from shoal_labs.rotation import Rotation
from shoal_labs.runs import Runs
from shoal_labs.steps import Step, read_steps
from shoal_labs.timing.turns import made_again, over_rounds, train_in_turns

BYTES_PER_ELEMENT = 4
LAST_STEPS = 10
"""Steps over which the loss at the end of a run is averaged: one batch says little."""
ELEMENTS = 1003
"""Of a random bucket. Not a multiple of the number of workers, so that slices have to be padded."""


@dataclass(frozen=True)
class Times:
    """What an exchange costs in a step: means over the workers, medians over the steps."""

    wait_ms: Measured
    move_ms: Measured
    exchange_ms: Measured


@dataclass(frozen=True)
class Recorded:
    """What the record says that a branch called, in every step of all its turns."""

    operations: frozenset[str]
    as_labelled: bool
    """Whether it called what its label says, all of it and nothing else."""
    calls: int
    """Of one worker in one step; where workers differ, of the one with the most."""
    sent: int
    """Bytes that the busiest worker sent; collectives count as rings."""
    predicted: int | None
    """What an algorithm says its busiest worker sends."""


@dataclass(frozen=True)
class Pace:
    """Steps of one exchange under one condition: their speed, and where the time goes."""

    samples_per_s: Measured
    ranks: Sequence[tuple[Measured, Measured, Measured]]
    """Own work, waiting and moving of every worker, in ms per step."""

    @property
    def wait_ms(self) -> Measured:
        """Waiting in a step, of the worker that waits longest."""
        return max((wait for _, wait, _ in self.ranks), key=lambda wait: wait.value)

    @property
    def move_ms(self) -> Measured:
        """Moving, of the worker that moves longest."""
        return max((move for _, _, move in self.ranks), key=lambda move: move.value)


@dataclass(frozen=True)
class Trained:
    """A run, repeated with every seed."""

    curves: Sequence[Curve]
    accuracies: Sequence[float]
    """None where the run was stopped."""
    stopped: str
    """The error of the first run; empty if it finished."""

    @property
    def losses(self) -> Sequence[float]:
        """Of the last steps."""
        return [fmean(curve.loss[-LAST_STEPS:]) for curve in self.curves]


@dataclass(frozen=True)
class Lab2Measurements:
    """Everything measured."""

    plan: Lab2Plan
    parameters: int
    tensors: int
    test_samples: int
    """On which accuracies are measured."""
    branches: Mapping[str, Mapping[str, Times]]
    """By condition and branch."""
    recorded: Mapping[str, Recorded]
    sums: Mapping[str, tuple[float, bool]]
    """How far each branch is from the exact sum, and whether all workers hold the same bits."""
    paces: Mapping[str, Pace]
    link_stage_steps: Sequence[float]
    """The exchange of every step of the run whose way of exchanging changes half-way, in ms."""
    differences: Mapping[str, float]
    """How far the weights of two runs are from each other, by what is compared; of `balanced`, the losses."""
    contests: Mapping[str, Paired]
    """The times that are compared round by round, by finding."""
    turns: Mapping[str, Sequence[Pace]]
    """The runs that took turns, round by round."""
    learnt: Mapping[str, Trained]
    faulty: Mapping[tuple[str, str], Trained]
    """By fault and rule."""


def measure(plan: Lab2Plan, runs: Runs) -> Lab2Measurements:
    """Read every run folder, and make the runs that are repeated until they decide."""
    steps = {
        name: read_steps(runs.path(name), plan.workers)
        for name in plan.runs()
        if name.startswith(("rotate-", "pace-"))
    }
    rotated = {name: steps[f"rotate-{name}"] for name in CONDITIONS}
    weights = read_model(RunFolder(runs.path("rotate-even")).model).weights
    numels = [weight.numel() for weight in weights.values()]
    contests = [contest_of(plan, runs, condition) for condition in CONTESTS]
    return Lab2Measurements(
        plan=plan,
        parameters=sum(numels),
        tensors=len(numels),
        test_samples=len(load(plan.data).test),
        branches={name: branch_times(rotated[name], plan.rotation(name)) for name in CONDITIONS},
        recorded=recorded_calls(rotated["even"], plan.rotation("even").names, numels),
        sums=sum_errors(plan.workers, plan.first_seed),
        paces={
            name.removeprefix("pace-"): pace_of(its[1:])  # the first step warms up
            for name, its in steps.items()
            if name.startswith("pace-")
        },
        link_stage_steps=over_workers(steps["pace-link-stages"], "exchange_ms"),
        differences={**weight_differences(plan, runs), "balanced": _balanced_difference(plan, runs)},
        contests={finding: pair for pairs in contests for finding, pair in pairs.items()},
        turns=timed_in_turns(plan, runs),
        learnt={name: _trained(runs, list(plan.learn_runs(name))) for name in LEARNING},
        faulty={
            (fault, rule): _trained(runs, list(plan.fault_runs(fault, rule)))
            for fault in FAULTS
            for rule in RULES
        },
    )


def pace_of(steps: Sequence[Step]) -> Pace:
    """The speed of some steps, and where their time goes."""
    step_s = [max(rank.own_ms + rank.exchange_ms for rank in step) / 1e3 for step in steps]

    def of_rank(rank: int, part: str) -> Measured:
        return inside_run([getattr(step[rank], part) for step in steps])

    return Pace(
        inside_run([BATCH_SIZE / seconds for seconds in step_s]),
        [
            (of_rank(rank, "own_ms"), of_rank(rank, "wait_ms"), of_rank(rank, "move_ms"))
            for rank in range(len(steps[0]))
        ],
    )


# ── every branch: its sum, its time, its calls ──


def sum_errors(workers: int, seed: int) -> dict[str, tuple[float, bool]]:
    """Every branch with this many threads on random buckets, against the sum in double precision.

    The error is relative to the largest element of the sum.
    """
    rows = torch.randn(workers, ELEMENTS, generator=torch.Generator().manual_seed(seed))
    wanted = rows.double().sum(dim=0)
    found: dict[str, tuple[float, bool]] = {}
    for branch in ALL:
        average = BRANCHES.get(branch) or ALGORITHMS[branch.partition(":")[2]]

        def work(group: Group, average: Callable[[Group, Tensor], object] = average) -> Tensor:
            bucket = rows[group.rank].clone()
            average(group, bucket)
            return bucket

        buckets = run_threads(workers, work)
        error = max(float((bucket.double() - wanted).abs().max() / wanted.abs().max()) for bucket in buckets)
        found[branch] = error, all(torch.equal(bucket, buckets[0]) for bucket in buckets)
    return found


def over_workers(steps: Sequence[Step], part: str) -> list[float]:
    """Waiting, moving or both in every step: the mean over the workers."""
    return [fmean(getattr(rank, part) for rank in step) for step in steps]


def branch_times(steps: Sequence[Step], rotation: Rotation) -> dict[str, Times]:
    """The times of every branch in the steps that count."""
    counted = rotation.counted(steps)
    return {
        branch: Times(
            *(inside_run(over_workers(its, part)) for part in ("wait_ms", "move_ms", "exchange_ms"))
        )
        for branch, its in counted.items()
    }


def recorded_calls(
    steps: Sequence[Step], rotation: Sequence[str], numels: Sequence[int]
) -> dict[str, Recorded]:
    """What every branch really called, from the records of all workers."""
    found: dict[str, Recorded] = {}
    for branch in ALL:
        ranks = [rank for step, its in zip(steps, rotation, strict=True) if its == branch for rank in step]
        operations = frozenset(operation for rank in ranks for operation in rank.calls)
        found[branch] = Recorded(
            operations=operations,
            as_labelled=operations == calls_of(branch),
            calls=max(sum(rank.calls.values()) for rank in ranks),
            sent=max(rank.sent_bytes for rank in ranks),
            predicted=_predicted(branch, len(steps[0]), numels) if branch in MESSAGES else None,
        )
    return found


def _predicted(branch: str, workers: int, numels: Sequence[int]) -> int:
    algorithm = branch.partition(":")[2]
    elements = (
        sum(sends(algorithm, rank, workers, numel).elements for numel in numels) for rank in range(workers)
    )
    return BYTES_PER_ELEMENT * max(elements)


# ── what is compared round by round ──


def contest_of(plan: Lab2Plan, runs: Runs, condition: str) -> dict[str, Paired]:
    """The branches that take turns under a condition; their run is made again while its rounds decide too little."""
    name, rotation = f"contest-{condition}", plan.contest(condition)

    def read(paths: Sequence[Path]) -> dict[str, Paired]:
        steps = [step for path in paths for step in read_steps(path, plan.workers)]
        rounds = replace(rotation, rounds=rotation.rounds * len(paths))
        return compared(condition, lambda part: rounds.by_round(over_workers(steps, part)))

    def decides(paths: Sequence[Path]) -> bool:
        return all(pair.settled for pair in read(paths).values())

    return read(made_again(runs, name, plan.runs()[name], plan.size.most, decides))


def compared(condition: str, times: Callable[[str], Mapping[str, Sequence[float]]]) -> dict[str, Paired]:
    """What findings compare of a contest, by finding; `times` of a part: by branch, a number for each round."""
    if condition == "compute":
        waits = times("wait_ms")
        return {"no_collective_helps": shortest_and_half_of_longest([waits[branch] for branch in COURSE])}
    move = times("move_ms")
    if condition == "link":
        return {"slow_link_choice": by_rounds(move["gather_broadcast"], move["by:ring"])}
    exchange, wait = times("exchange_ms"), times("wait_ms")
    return {
        "all_reduce_beats_gather": by_rounds(exchange["all_reduce"], exchange["gather_broadcast"]),
        "all_reduce_beats_all_gather": by_rounds(exchange["all_reduce"], exchange["all_gather"]),
        "waiting_is_less": by_rounds(wait["all_reduce"], move["all_reduce"]),
    }


def shortest_and_half_of_longest(times: Sequence[Sequence[float]]) -> Paired:
    """Of several series of rounds, the one with the lowest median beside half of the one with the highest.

    >>> pair = shortest_and_half_of_longest([[3.0, 3.0], [8.0, 6.0], [4.0, 4.0]])
    >>> pair.first.value, pair.second.value, pair.difference.value
    (3.0, 3.5, -0.5)
    """
    ordered = sorted(times, key=median)
    return by_rounds(ordered[0], [each / 2 for each in ordered[-1]])


def timed_in_turns(plan: Lab2Plan, runs: Runs) -> dict[str, list[Pace]]:
    """Make the runs that take turns, and read their last steps: balancing needs the others."""
    first = plan.size.turn_rounds
    bases = {f"turn-{name}": f"turn-{base}" for name, base in TURNS.items() if base}
    label, most = runs.words("progress.timed"), plan.size.most * first
    rounds = train_in_turns(runs, plan.turns(), first, label, most=most, bases=bases)

    def read(path: Path) -> Pace:
        steps = read_steps(path, plan.workers)
        return pace_of(steps[-(len(steps) // 4) :])

    return {name: over_rounds(runs, f"turn-{name}", rounds, read) for name in TURNS}


def stage_start(steps: int) -> int:
    """The first step of the second half."""
    return math.ceil(steps / 2)


def stage_times(exchange: Sequence[float]) -> Paired:
    """The exchange in the first and in the second half of a run, step by step; the first step of each warms up."""
    middle = stage_start(len(exchange))
    halves = exchange[1:middle], exchange[middle + 1 :]
    count = min(map(len, halves))
    return by_rounds(*(half[:count] for half in halves))


# ── single runs ──


def weight_differences(plan: Lab2Plan, runs: Runs) -> dict[str, float]:
    """max|a − b| / max|b| over all weights, of two runs that are said to be equal, or not to be."""
    return {name: runs.weight_difference(*pair) for name, pair in plan.compared_weights().items()}


def _balanced_difference(plan: Lab2Plan, runs: Runs) -> float:
    """The largest relative difference of the losses of the first steps, with balancing and without."""
    balanced, slow = (_curve(runs.path(name)) for name in ("pace-compute-balanced", "pace-compute"))
    first = slice(plan.size.equal_steps)
    return float(max(abs(balanced.loss[first] - slow.loss[first]) / abs(slow.loss[first])))


def _trained(runs: Runs, names: Sequence[str]) -> Trained:
    """Runs that differ in their seed alone."""
    stopped = runs.stopped.get(names[0], "")
    paths = [runs.path(name) for name in names]
    accuracies = [] if stopped else [float(read_run(path).result["test_accuracy"]) for path in paths]
    return Trained([_curve(path) for path in paths], accuracies, stopped)


def _curve(run: Path) -> Curve:
    """The curve of a run that may have been stopped."""
    return curve_of([record for record in read_events(RunFolder(run).events()) if record["event"] == "step"])
