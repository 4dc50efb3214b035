"""The numbers that the findings rest on, read from run folders alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shoal import models
from shoal.compare.comparison import compare
from shoal.data.load import load
from shoal.labs.lab3.order import differences_from_same_order
from shoal.labs.lab3.own_loop import WRONG, OwnResult, train_ways
from shoal.labs.lab3.plan import BATCH_SIZE, DIVISIONS, Plan, run_name
from shoal.labs.lab3.seen import Seen, refusals, seen_in
from shoal.labs.lab3.wrong_samplers import coverage_of_one_workers_range, coverage_of_seed_per_rank
from shoal.labs.numbers import sample_counts
from shoal.labs.runs import Runs
from shoal.report.findings import Measured, inside_run, over_seeds
from shoal.report.runs import Array, Run, read_run

ONE_CORE, ALL_CORES = "reference-one-core", "reference-all-cores"
"""The first part of the names of one process's timed runs."""


@dataclass(frozen=True)
class Learnt:
    """One way of training, repeated with every seed. Arrays have a row for each seed and a column for each epoch."""

    loss: Array
    """Mean training loss of the epoch."""
    accuracy: Array
    """On the validation part, at the end of the epoch."""
    test_accuracy: Measured

    @property
    def final_loss(self) -> Measured:
        """Of the last epoch."""
        return over_seeds(self.loss[:, -1].tolist())


@dataclass(frozen=True)
class Pace:
    """How fast a run was, and where its time went."""

    sample_ms: Measured
    """Milliseconds per sample: median and spread over the steps."""
    against_all_cores: float
    """How many times as fast as one process on all cores."""
    against_one_core: float
    own: float
    """Parts of the time, means over the workers: own work (data, forward, backward, update, the loop itself)."""
    move: float
    wait: float

    @property
    def samples_per_s(self) -> float:
        """Of the median step."""
        return 1e3 / self.sample_ms.value

    @property
    def step_ms(self) -> Measured:
        """A whole step."""
        return self.sample_ms.scaled(BATCH_SIZE)

    @property
    def communication(self) -> float:
        """The part of the time in which a worker moved bytes or waited for others."""
        return self.move + self.wait


@dataclass(frozen=True)
class Divided:
    """One division of the data with one number of workers."""

    learnt: Learnt
    seen: Sequence[Seen]
    """What is seen of the data set, with every seed."""
    pace: Pace | None
    """None where it was not timed."""

    @property
    def coverage(self) -> Measured:
        """Of the first epoch."""
        return over_seeds([seen.first.coverage for seen in self.seen])


@dataclass(frozen=True)
class Own:
    """One way of the lab's own loop with one number of workers."""

    learnt: Learnt
    coverage: Array
    """The part of the data set seen so far: a row for each seed, a column for each epoch."""
    overlap: Measured
    """The part that more than one worker sees in the first epoch."""
    predicted: float
    """The first epoch's coverage by formula."""

    @property
    def first_coverage(self) -> Measured:
        """Of the first epoch."""
        return over_seeds(self.coverage[:, 0].tolist())


@dataclass(frozen=True)
class Measurements:
    """Everything measured."""

    plan: Plan
    num_samples: Mapping[str, int]
    """Sizes of the training, validation and test part."""
    parameters: int
    single: Learnt
    one_core: Pace
    all_cores: Pace
    divided: Mapping[tuple[str, int], Divided]
    """By division and number of workers."""
    slow_random: Mapping[int, Pace]
    """Equal parts where one worker is slow."""
    own: Mapping[tuple[str, int], Own]
    """By way and number of workers."""
    from_single: Mapping[int, float]
    """How far the weights are from one machine's when every step is divided anew, by number of workers."""
    from_same_order: Mapping[str, float]
    """How far they are from one machine that takes the same samples, by division."""
    refusals: Mapping[str, str]
    """The errors with which Shoal refuses the wrong samplers."""

    @property
    def fitting(self) -> int:
        """The largest number of workers that still has a core for each; the smallest number where there is none."""
        return max((w for w in self.plan.workers if w <= self.plan.cores), default=min(self.plan.workers))


def measure(plan: Plan, runs: Runs) -> Measurements:
    """Compare the samplers in the lab's own loop, then read every run folder."""
    own, data = train_ways(plan, runs), load(plan.data)
    model = models.build(plan.model, data.input_shape, data.outputs, plan.first_seed)
    paces = _paces(plan, runs)
    return Measurements(
        plan=plan,
        num_samples=sample_counts(data),
        parameters=sum(param.numel() for param in model.parameters()),
        single=_learnt(runs, [f"single-seed{seed}" for seed in plan.seeds]),
        one_core=paces[ONE_CORE],
        all_cores=paces[ALL_CORES],
        divided={
            (name, workers): Divided(
                _learnt(runs, [run_name(name, workers, seed) for seed in plan.seeds_of(workers)]),
                [seen_in(plan, data, name, workers, seed) for seed in plan.seeds_of(workers)],
                paces.get(run_name(name, workers, plan.first_seed)),
            )
            for name in DIVISIONS
            for workers in plan.workers
        },
        slow_random={workers: paces[f"slow-random-{workers}w"] for workers in plan.workers},
        own={(way, workers): _own(way, workers, results) for (way, workers), results in own.items()},
        from_single={
            workers: runs.weight_difference(f"equal-global-{workers}w", "equal-single")
            for workers in plan.workers
        },
        from_same_order=differences_from_same_order(plan),
        refusals=refusals(plan.most, len(data.train)),
    )


def epoch_losses(run: Run, epochs: int) -> list[float]:
    """The mean loss over the samples of every epoch."""
    starts = np.append(run.curve.samples, run.samples)
    weights = np.diff(starts)
    epoch_of = (run.curve.samples * epochs / run.samples).astype(int)
    sums = np.bincount(epoch_of, weights * run.curve.loss, epochs)
    return (sums / np.bincount(epoch_of, weights, epochs)).tolist()


def _learnt(runs: Runs, names: Sequence[str]) -> Learnt:
    found = [read_run(runs.path(name)) for name in names]
    return Learnt(
        np.array([epoch_losses(run, run.config.train.epochs) for run in found]),
        np.array([[record["accuracy"] for record in run.validations] for run in found]),
        over_seeds([float(run.result["test_accuracy"]) for run in found]),
    )


def _paces(plan: Plan, runs: Runs) -> dict[str, Pace]:
    """The runs whose times are used, against one process."""
    names = [
        name
        for workers in plan.workers
        for name in (
            *(run_name(division, workers, plan.first_seed) for division in plan.size.timed),
            f"slow-random-{workers}w",
        )
    ]
    times = {cores: _reference_ms(plan, runs, cores) for cores in (ONE_CORE, ALL_CORES)}

    def pace(sample_ms: Measured, shares: Mapping[str, float]) -> Pace:
        return Pace(
            sample_ms,
            times[ALL_CORES].value / sample_ms.value,
            times[ONE_CORE].value / sample_ms.value,
            shares["compute"] + shares["other"],
            shares["move"],
            shares["wait"],
        )

    paces = {
        entry.name: pace(entry.sample_s.scaled(1e3), entry.shares)
        for entry in compare([runs.path(name) for name in names]).entries
    }
    alone = {"compute": 1.0, "other": 0.0, "move": 0.0, "wait": 0.0}
    return paces | {cores: pace(times[cores], alone) for cores in times}


def _reference_ms(plan: Plan, runs: Runs, cores: str) -> Measured:
    """Milliseconds per sample of one process, over the steps of all its runs; the first steps warm up."""
    curves = [read_run(runs.path(name)).curve for name in plan.runs() if name.startswith(cores)]
    each = [curve.step_seconds()[1:] / np.diff(curve.samples)[1:] for curve in curves]
    return inside_run(np.concatenate(each).tolist()).scaled(1e3)


def _own(way: str, workers: int, found: Sequence[OwnResult]) -> Own:
    def rows(part: Callable[[OwnResult], list[float]]) -> Array:
        return np.array([part(result) for result in found])

    return Own(
        Learnt(
            rows(lambda result: result.loss),
            rows(lambda result: result.accuracy),
            over_seeds([result.test_accuracy for result in found]),
        ),
        rows(lambda result: result.coverage),
        over_seeds([result.overlap for result in found]),
        PREDICTED[way](workers) if way in WRONG else 1.0,
    )


PREDICTED: Mapping[str, Callable[[int], float]] = {
    "range": coverage_of_one_workers_range,
    "rank-seed": coverage_of_seed_per_rank,
}
"""What a wrong sampler sees of the data set in an epoch, by formula."""
