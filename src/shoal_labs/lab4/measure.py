"""The numbers that the findings rest on, read from run folders alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import safe_open

from shoal import models
from shoal.kit.division import load
from shoal.kit.findings import Measured, Paired, by_rounds, inside_run
from shoal.kit.runs import (
    Array,
    ComparedRun,
    RankShares,
    Run,
    RunFolder,
    StepRecord,
    compare,
    first_step_difference,
    read_events,
    steps_of,
)
from shoal.kit.strategies import Row
from shoal.kit.strategies import build_schedule as build
from shoal.kit.training import checkpoint
from shoal_labs.lab4.actions import PipelineSteps, read_pipelined
from shoal_labs.lab4.plan import BASES, BATCH_SIZE, MICROBATCHES, SCHEDULES, Lab4Plan
from shoal_labs.lab4.waiting import divided_by_sender
from shoal_labs.numbers import sample_counts
from shoal_labs.runs import Runs
from shoal_labs.timing.turns import round_name, train_in_turns


@dataclass(frozen=True)
class SavedBytes:
    """Bytes that one worker saves."""

    parameters: int
    state: int
    """Of the optimizer."""

    @property
    def total(self) -> int:
        """Both."""
        return self.parameters + self.state


@dataclass(frozen=True)
class Way:
    """One way to divide the model: how fast, and what each worker does and holds."""

    step_ms: Measured
    ranks: Sequence[RankShares]
    sent_bytes: int
    """In one step, by all workers."""
    held: Sequence[SavedBytes]
    """By rank."""
    first_step: float
    """How far the state after the first step is from one machine's."""
    not_scheduled: float | None
    """The part of the time in which a worker was ready to run but had no core; None if unknown."""

    @property
    def work_ms(self) -> tuple[float, ...]:
        """The computing time of each worker in a step."""
        return tuple(1e3 * rank.work_s.value for rank in self.ranks)


@dataclass(frozen=True)
class Learnt:
    """What a way of training learnt, by epoch."""

    loss: Array
    accuracy: Array
    """On the validation part, at the end of the epoch."""
    test_accuracy: float


@dataclass(frozen=True)
class Rounds:
    """One run, once in every round."""

    step_ms: tuple[float, ...]
    """Of the median step."""
    bubble: tuple[float, ...]
    """The fraction of all stages' time in which they do not compute; empty for a run without a pipeline."""


@dataclass(frozen=True)
class Lab4Measurements:
    """Everything measured."""

    plan: Lab4Plan
    num_samples: Mapping[str, int]
    parameters: int
    ways: Mapping[str, Way]
    """By run."""
    learnt: Mapping[str, Learnt]
    pipelined: Mapping[str, PipelineSteps]
    """By run, of all runs with a pipeline."""
    rounds: Mapping[str, Rounds]
    """By run: what was measured while the runs took turns."""

    @property
    def one_process(self) -> str:
        """The faster of one process on one core and one process on all."""
        return min(("single", "all-cores"), key=lambda name: self.ways[name].step_ms.value)

    def compared(self, first: str, second: str) -> Paired:
        """The times of a step of two runs that took turns, in ms."""
        return by_rounds(self.rounds[first].step_ms, self.rounds[second].step_ms)

    def bubble(self, name: str) -> Measured:
        """The bubble of a pipeline over the rounds: the number of all tables, figures and findings."""
        return inside_run(self.rounds[name].bubble)

    @property
    def divided(self) -> tuple[str, ...]:
        """The ways that divide the model."""
        return self.plan.ways[1:]

    @property
    def busiest(self) -> float:
        """The largest part of the time in which a worker of some run had no core."""
        return max((way.not_scheduled or 0.0 for way in self.ways.values()), default=0.0)


def measure(plan: Lab4Plan, runs: Runs) -> Lab4Measurements:
    """Read every run folder."""
    names = list(plan.runs())
    reference = RunFolder(runs.path("single")).first_step
    entries = dict(zip(names, compare([runs.path(name) for name in names]).entries, strict=True))
    data = load(plan.data)
    model = models.build(entries["single"].config.model, data.input_shape, data.outputs, plan.seed)
    schedules: dict[str, tuple[str, int]] = {
        **{name: (name, MICROBATCHES) for name in SCHEDULES},
        **{name: ("1f1b", count) for count, name in plan.counted().items()},
        **dict.fromkeys(plan.cuts().values(), ("1f1b", MICROBATCHES)),
    }
    rounds = _timed_in_turns(plan, runs, schedules)
    return Lab4Measurements(
        plan=plan,
        num_samples=sample_counts(data),
        parameters=sum(param.numel() for param in model.parameters()),
        ways={
            name: replace(
                _way(entry, reference, _rows(plan, name, schedules.get(name))),
                step_ms=inside_run(rounds[name].step_ms),
            )
            for name, entry in entries.items()
        },
        learnt={name: _learnt(entries[name].run) for name in plan.ways},
        pipelined={
            name: read_pipelined(runs.path(name), schedule, plan.stages_of(name), count)
            for name, (schedule, count) in schedules.items()
        },
        rounds=rounds,
    )


def _timed_in_turns(
    plan: Lab4Plan, runs: Runs, schedules: Mapping[str, tuple[str, int]]
) -> dict[str, Rounds]:
    """Make every contest of the plan, and read it. `schedules`: schedule and micro-batches of the pipelines."""
    found: dict[str, Rounds] = {}
    for contest, configs in plan.contests().items():
        first = plan.rounds_of(contest)
        rounds = train_in_turns(
            runs,
            configs,
            first,
            runs.words(f"progress.{contest}"),
            same_workers=contest != "rpc",
            most=plan.size.most * first,
            bases=BASES if contest == "schedules" else None,
            budget_s=plan.size.contest_s,
        )
        for name in configs:
            paths = [runs.path(round_name(name, number)) for number in range(rounds)]
            times = tuple(1e3 * BATCH_SIZE * each.sample_s.value for each in compare(paths).entries)
            bubbles: tuple[float, ...] = ()
            if name in schedules:
                schedule, count = schedules[name]
                stages = plan.stages_of(name)
                bubbles = tuple(read_pipelined(path, schedule, stages, count).bubble.value for path in paths)
            found[name] = Rounds(times, bubbles)
    return found


def _rows(plan: Lab4Plan, name: str, schedule: tuple[str, int] | None) -> Sequence[Row]:
    """The rows of a pipeline's schedule; nothing for other runs."""
    return build(schedule[0], plan.stages_of(name), schedule[1]).rows if schedule else ()


def _way(entry: ComparedRun, reference: Path, rows: Sequence[Row]) -> Way:
    folder = entry.run.folder
    ranks = [steps_of(read_events(folder.events(rank.rank))) for rank in entry.ranks]
    difference = first_step_difference(folder.first_step, reference)
    assert difference is not None, f"{entry.name} and one machine have the same model"
    return Way(
        entry.sample_s.scaled(1e3 * BATCH_SIZE),
        divided_by_sender(entry.ranks, ranks, rows) if rows else entry.ranks,
        sum(map(_sent_bytes, ranks)),
        _held(folder, entry.workers),
        difference,
        entry.not_scheduled,
    )


def _sent_bytes(steps: Sequence[StepRecord]) -> int:
    """Bytes that one worker sends in the first step, which has a whole batch."""
    return sum(span.sent_bytes for span in steps[0].spans or ())


def _held(folder: RunFolder, workers: int) -> list[SavedBytes]:
    latest = checkpoint.latest(folder.checkpoints).path
    return [_held_in(latest / f"rank{rank}.safetensors") for rank in range(workers)]


def _held_in(path: Path) -> SavedBytes:
    if not path.exists():  # a worker that only drives
        return SavedBytes(0, 0)
    with safe_open(path, "numpy") as file:
        sizes = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118
    parameters = sum(size for name, size in sizes.items() if name.startswith("model."))
    return SavedBytes(parameters, sum(sizes.values()) - parameters)


def _learnt(run: Run) -> Learnt:
    epochs = run.config.train.epochs
    weights = np.diff(np.append(run.curve.samples, run.samples))
    epoch_of = (run.curve.samples * epochs / run.samples).astype(int)
    losses = np.bincount(epoch_of, weights * run.curve.loss, epochs) / np.bincount(epoch_of, weights, epochs)
    accuracy = np.array([record["accuracy"] for record in run.validations])
    return Learnt(losses, accuracy, float(run.result["test_accuracy"]))
