"""The numbers that the findings rest on, read from run folders alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from shoal.comm.costs import sends
from shoal.data.load import load
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.report.findings import Measured, inside_run
from shoal.report.finished_runs import Curve, curve_of, read_run
from shoal.report.paired import Paired, by_rounds
from shoal.training.weights import read_model
from shoal_labs.lab2.branches import ALL, MESSAGES, calls_of
from shoal_labs.lab2.plan import CONDITIONS, CONTESTS, FAULTS, RULES, UNEVEN_WAYS, Lab2Plan
from shoal_labs.lab2.rounds import Contest, Turn, contest_of, timed_in_turns
from shoal_labs.lab2.sums import SumError, sum_errors
from shoal_labs.rotation import Rotation
from shoal_labs.runs import Runs
from shoal_labs.steps import Step, read_steps

BYTES_PER_ELEMENT = 4
LAST_STEPS = 10
"""Steps over which the loss at the end of a run is averaged: one batch says little."""

SGD_WAYS = ("sgd-sum", "sgd-mean", "sgd-scaled", "sgd-stages")
LEARNING = (*SGD_WAYS, "adam-sum", "adam-mean", "uneven-exact", "uneven-mean")


@dataclass(frozen=True)
class BranchTimes:
    """One way of averaging under one condition: what it cost in a step, per worker."""

    wait_ms: Measured
    move_ms: Measured
    exchange_ms: Measured


@dataclass(frozen=True)
class Recorded:
    """What the record says that a branch called, in every step of all its turns."""

    operations: frozenset[str]
    calls: int
    """Of one worker in one step; where workers differ, of the one with the most."""
    sent: int
    """Bytes that the busiest worker sent; collectives count as rings."""
    predicted: int | None
    """What an algorithm says its busiest worker sends."""


@dataclass(frozen=True)
class Pace:
    """A run of one exchange under one condition."""

    samples_per_s: Measured
    ranks: tuple[tuple[Measured, Measured, Measured], ...]
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
class Learnt:
    """One aggregation, repeated with every seed."""

    curves: tuple[Curve, ...]
    accuracies: tuple[float, ...]

    @property
    def losses(self) -> tuple[float, ...]:
        """Of the last steps."""
        return tuple(fmean(curve.loss[-LAST_STEPS:]) for curve in self.curves)


@dataclass(frozen=True)
class Faulty:
    """One rule with one kind of faulty worker."""

    curve: Curve
    accuracies: tuple[float, ...]
    """Of every seed; none where the run was stopped."""
    stopped: str
    """The error of the run; empty if it finished."""


@dataclass(frozen=True)
class Lab2Measurements:
    """Everything measured."""

    plan: Lab2Plan
    parameters: int
    tensors: int
    test_samples: int
    """On which accuracies are measured."""
    branches: Mapping[str, Mapping[str, BranchTimes]]
    """By condition and branch."""
    recorded: Mapping[str, Recorded]
    sums: Mapping[str, SumError]
    paces: Mapping[str, Pace]
    link_stage_steps: tuple[float, ...]
    """The exchange of every step of the run whose way of exchanging changes half-way, in ms."""
    differences: Mapping[str, float]
    """How far the weights of two runs are from each other, by what is compared; of `balanced`, the losses."""
    contests: Mapping[str, Contest]
    """By condition: the branches that were compared round by round."""
    turns: Mapping[str, Turn]
    """The runs that took turns."""
    learnt: Mapping[str, Learnt]
    faulty: Mapping[tuple[str, str], Faulty]
    """By fault and rule."""


def measure(plan: Lab2Plan, runs: Runs) -> Lab2Measurements:
    """Read every run folder."""
    steps = {name: read_steps(runs.path(f"rotate-{name}"), plan.workers) for name in CONDITIONS}
    numels = _numels(runs.path("rotate-even"))
    return Lab2Measurements(
        plan=plan,
        parameters=sum(numels),
        tensors=len(numels),
        test_samples=len(load(plan.data).test),
        branches={
            condition: branch_times(steps[condition], plan.rotation(condition)) for condition in CONDITIONS
        },
        recorded=recorded_calls(steps["even"], plan.rotation("even").names, numels),
        sums=sum_errors(plan.workers, plan.first_seed),
        paces={
            name.removeprefix("pace-"): _pace(runs.path(name), plan.workers)
            for name in plan.runs()
            if name.startswith("pace-")
        },
        link_stage_steps=tuple(
            fmean(rank.exchange_ms for rank in step)
            for step in read_steps(runs.path("pace-link-stages"), plan.workers)
        ),
        differences={**weight_differences(plan, runs), "balanced": _balanced_difference(plan, runs)},
        contests={name: contest_of(plan, runs, name) for name in CONTESTS},
        turns=timed_in_turns(plan, runs),
        learnt={name: _learnt(plan, runs, name) for name in LEARNING},
        faulty={(fault, rule): _faulty(plan, runs, fault, rule) for fault in FAULTS for rule in RULES},
    )


def branch_times(steps: Sequence[Step], rotation: Rotation) -> dict[str, BranchTimes]:
    """The times of every branch: of each step the mean over the workers, of these the median over the steps."""
    counted = rotation.counted(steps)

    def over_steps(branch: str, part: str) -> Measured:
        return inside_run([fmean(getattr(rank, part) for rank in step) for step in counted[branch]])

    return {
        branch: BranchTimes(*(over_steps(branch, part) for part in ("wait_ms", "move_ms", "exchange_ms")))
        for branch in ALL
    }


def recorded_calls(
    steps: Sequence[Step], rotation: Sequence[str], numels: Sequence[int]
) -> dict[str, Recorded]:
    """What every branch really called, from the records of all workers."""
    found: dict[str, Recorded] = {}
    for branch in ALL:
        ranks = [rank for step, its in zip(steps, rotation, strict=True) if its == branch for rank in step]
        found[branch] = Recorded(
            operations=frozenset(operation for rank in ranks for operation in rank.calls),
            calls=max(sum(rank.calls.values()) for rank in ranks),
            sent=max(rank.sent_bytes for rank in ranks),
            predicted=_predicted(branch, len(steps[0]), numels) if branch in MESSAGES else None,
        )
    return found


def as_labelled(branch: str, recorded: Recorded) -> bool:
    """Whether a branch called what its label says, all of it and nothing else."""
    return recorded.operations == calls_of(branch)


def _predicted(branch: str, workers: int, numels: Sequence[int]) -> int:
    algorithm = branch.partition(":")[2]
    elements = (
        sum(sends(algorithm, rank, workers, numel).elements for numel in numels) for rank in range(workers)
    )
    return BYTES_PER_ELEMENT * max(elements)


def _pace(run: Path, workers: int) -> Pace:
    steps = read_steps(run, workers)[1:]  # the first one warms up
    step_s = [max(rank.own_ms + rank.exchange_ms for rank in step) / 1e3 for step in steps]
    batch = read_run(run).curve.samples[1]
    ranks = [
        tuple(
            inside_run([getattr(step[rank], part) for step in steps])
            for part in ("own_ms", "wait_ms", "move_ms")
        )
        for rank in range(workers)
    ]
    return Pace(
        inside_run([batch / seconds for seconds in step_s]),
        tuple((own, wait, move) for own, wait, move in ranks),
    )


def weight_differences(plan: Lab2Plan, runs: Runs) -> dict[str, float]:
    """max|a − b| / max|b| over all weights, of two runs that are said to be equal, or not to be."""
    pairs = {
        "exact": ("equal-exact", "equal-single"),
        "sum": ("equal-sum", "equal-mean"),
        "parameters": ("equal-parameters", "equal-mean"),
        "adam-parameters": ("equal-adam-parameters", "equal-adam"),
        "stages": ("equal-stages", "equal-exact"),
        **{f"uneven-{way}": (f"equal-uneven-{way}", plan.uneven_single) for way in UNEVEN_WAYS},
    }
    return {name: runs.weight_difference(a, b) for name, (a, b) in pairs.items()}


def _balanced_difference(plan: Lab2Plan, runs: Runs) -> float:
    """The largest relative difference of the losses of the first steps, with balancing and without."""
    balanced, slow = (_curve(runs.path(name)) for name in ("pace-compute-balanced", "pace-compute"))
    first = slice(plan.size.equal_steps)
    return float(max(abs(balanced.loss[first] - slow.loss[first]) / abs(slow.loss[first])))


def _learnt(plan: Lab2Plan, runs: Runs, name: str) -> Learnt:
    found = [read_run(runs.path(f"learn-{name}-seed{seed}")) for seed in plan.learn_seeds(name)]
    return Learnt(
        tuple(run.curve for run in found), tuple(float(run.result["test_accuracy"]) for run in found)
    )


def _faulty(plan: Lab2Plan, runs: Runs, fault: str, rule: str) -> Faulty:
    names = [f"fault-{fault}-{rule}-seed{seed}" for seed in plan.fault_seeds(fault, rule)]
    stopped = runs.stopped.get(names[0], "")
    accuracies = [] if stopped else [float(read_run(runs.path(n)).result["test_accuracy"]) for n in names]
    return Faulty(_curve(runs.path(names[0])), tuple(accuracies), stopped)


def stage_start(steps: int) -> int:
    """The first step of the second half."""
    return math.ceil(steps / 2)


def stage_times(exchange: Sequence[float]) -> Paired:
    """The exchange in the first and in the second half of a run, step by step; the first step of each warms up."""
    middle = stage_start(len(exchange))
    halves = exchange[1:middle], exchange[middle + 1 :]
    count = min(map(len, halves))
    return by_rounds(*(half[:count] for half in halves))


def _curve(run: Path) -> Curve:
    """The curve of a run that may have been stopped."""
    return curve_of([record for record in read_events(RunFolder(run).events()) if record["event"] == "step"])


def _numels(run: Path) -> list[int]:
    return [weight.numel() for weight in read_model(RunFolder(run).model).weights.values()]
