"""The numbers that the findings rest on, read from run folders alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from shoal import models
from shoal.kit.division import load
from shoal.kit.findings import Measured, accuracy_over, inside_run, over_seeds
from shoal.kit.runs import Array, ComparedRun, Run, compare, read_run
from shoal_labs.lab3.batches import Batch, compare_batches
from shoal_labs.lab3.own_loop import WRONG, OwnResult, differences_from_same_order, train_ways
from shoal_labs.lab3.plan import (
    ALL_CORES,
    BATCH_SIZE,
    COMPARED,
    DIVISIONS,
    ONE_CORE,
    Lab3Plan,
    run_name,
    timed_name,
)
from shoal_labs.lab3.seen import Seen, refusals, seen_in
from shoal_labs.lab3.wrong_samplers import coverage_of_one_workers_range, coverage_of_seed_per_rank
from shoal_labs.numbers import sample_counts
from shoal_labs.runs import Runs
from shoal_labs.timing.turns import round_name, train_in_turns


@dataclass(frozen=True)
class Learnt:
    """One way of training, repeated with every seed. Arrays have a row for each seed and a column for each epoch."""

    loss: Array
    """Mean training loss of the epoch."""
    accuracy: Array
    """On the validation part, at the end of the epoch."""
    test_accuracies: tuple[float, ...]
    """Seed by seed."""
    test_samples: int

    @property
    def test_accuracy(self) -> Measured:
        """Over the seeds."""
        return accuracy_over(self.test_accuracies, self.test_samples)

    @property
    def final_losses(self) -> list[float]:
        """Of the last epoch, seed by seed."""
        return self.loss[:, -1].tolist()

    @property
    def final_loss(self) -> Measured:
        """Over the seeds."""
        return over_seeds(self.final_losses)


@dataclass(frozen=True)
class Pace:
    """How fast a run was, and where its time went."""

    rounds_ms: tuple[float, ...]
    """Milliseconds per sample of the median step, round by round."""
    against_all_cores: float
    """How many times as fast as one process on all cores."""
    against_one_core: float
    own: float
    """Parts of the time, means over the workers: own work (data, forward, backward, update, the loop itself)."""
    move: float
    wait: float

    @property
    def sample_ms(self) -> Measured:
        """Milliseconds per sample, over the rounds."""
        return inside_run(self.rounds_ms)

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


Paces = Mapping[str, Pace]
"""By division, or by one of the other ways that are timed."""


@dataclass(frozen=True)
class Divided:
    """One division of the data with one number of workers."""

    learnt: Learnt
    seen: Sequence[Seen]
    """What is seen of the data set, with every seed."""

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
class Lab3Measurements:
    """Everything measured."""

    plan: Lab3Plan
    num_samples: Mapping[str, int]
    """Sizes of the training, validation and test part."""
    parameters: int
    single: Learnt
    paces: Mapping[int, Paces]
    """The runs that took turns, by number of workers."""
    divided: Mapping[tuple[str, int], Divided]
    """By division and number of workers."""
    own: Mapping[tuple[str, int], Own]
    """By way and number of workers."""
    from_single: Mapping[int, float]
    """How far the weights are from one machine's when every step is divided anew, by number of workers."""
    from_same_order: Mapping[str, float]
    """How far they are from one machine that takes the same samples, by division."""
    refusals: Mapping[str, str]
    """The errors with which Shoal refuses the wrong samplers."""
    batches: Mapping[int, Batch]
    """By batch size."""

    @property
    def one_core(self) -> Pace:
        """One process on one core, in the rounds of the fitting number of workers."""
        return self.paces[self.plan.fitting][ONE_CORE]

    @property
    def all_cores(self) -> Pace:
        """One process on all cores."""
        return self.paces[self.plan.fitting][ALL_CORES]


def measure(plan: Lab3Plan, runs: Runs) -> Lab3Measurements:
    """Compare the samplers in the lab's own loop, then read every run folder."""
    own, data = train_ways(plan, runs), load(plan.data)
    model = models.build(plan.size.model, data.input_shape, data.outputs, plan.first_seed)
    paces = {workers: timed_in_turns(plan, runs, workers) for workers in plan.workers}
    return Lab3Measurements(
        plan=plan,
        num_samples=sample_counts(data),
        parameters=sum(param.numel() for param in model.parameters()),
        single=_learnt(runs, [f"single-seed{seed}" for seed in plan.seeds], len(data.test)),
        paces=paces,
        divided={
            (name, workers): Divided(
                _learnt(
                    runs,
                    [run_name(name, workers, seed) for seed in plan.seeds_of(name, workers)],
                    len(data.test),
                ),
                [seen_in(plan, data, name, workers, seed) for seed in plan.seeds_of(name, workers)],
            )
            for name in DIVISIONS
            for workers in plan.workers
        },
        own={
            (way, workers): _own(way, workers, results, len(data.test))
            for (way, workers), results in own.items()
        },
        from_single={
            workers: runs.weight_difference(f"equal-global-{workers}w", plan.equal_single(workers))
            for workers in plan.workers
        },
        from_same_order=differences_from_same_order(plan),
        refusals=refusals(plan.most, len(data.train)),
        batches=compare_batches(plan),
    )


def timed_in_turns(plan: Lab3Plan, runs: Runs, workers: int) -> Paces:
    """Make the timed runs of one number of workers, and read them."""
    configs, rounds = plan.timed(workers), plan.rounds_of(workers)
    label, most = runs.words("progress.timed", workers=workers), plan.size.most * rounds
    bases = {timed_name(way, workers): timed_name(base, workers) for way, base in COMPARED.items()}
    rounds = train_in_turns(runs, configs, rounds, label, most=most, bases=bases, budget_s=plan.size.budget_s)
    paths = [runs.path(round_name(name, number)) for name in configs for number in range(rounds)]
    entries = compare(paths).entries
    found = {name: entries[i * rounds : (i + 1) * rounds] for i, name in enumerate(configs)}
    times = {name: tuple(1e3 * each.sample_s.value for each in made) for name, made in found.items()}
    ways = {name: name.removeprefix("timed-").removesuffix(f"-{workers}w") for name in configs}
    alone = {cores: inside_run(times[timed_name(cores, workers)]).value for cores in (ALL_CORES, ONE_CORE)}
    return {way: _pace(times[name], found[name], alone) for name, way in ways.items()}


def _pace(rounds_ms: tuple[float, ...], made: Sequence[ComparedRun], alone: Mapping[str, float]) -> Pace:
    sample_ms = inside_run(rounds_ms).value
    shares = {part: fmean(each.shares[part] for each in made) for part in made[0].shares}
    return Pace(
        rounds_ms,
        alone[ALL_CORES] / sample_ms,
        alone[ONE_CORE] / sample_ms,
        shares["compute"] + shares["other"],
        shares["move"],
        shares["wait"],
    )


def epoch_losses(run: Run, epochs: int) -> list[float]:
    """The mean loss over the samples of every epoch."""
    starts = np.append(run.curve.samples, run.samples)
    weights = np.diff(starts)
    epoch_of = (run.curve.samples * epochs / run.samples).astype(int)
    sums = np.bincount(epoch_of, weights * run.curve.loss, epochs)
    return (sums / np.bincount(epoch_of, weights, epochs)).tolist()


def _learnt(runs: Runs, names: Sequence[str], test_samples: int) -> Learnt:
    found = [read_run(runs.path(name)) for name in names]
    return Learnt(
        np.array([epoch_losses(run, run.config.train.epochs) for run in found]),
        np.array([[record["accuracy"] for record in run.validations] for run in found]),
        tuple(float(run.result["test_accuracy"]) for run in found),
        test_samples,
    )


def _own(way: str, workers: int, found: Sequence[OwnResult], test_samples: int) -> Own:
    def rows(part: Callable[[OwnResult], list[float]]) -> Array:
        return np.array([part(result) for result in found])

    return Own(
        Learnt(
            rows(lambda result: result.loss),
            rows(lambda result: result.accuracy),
            tuple(result.test_accuracy for result in found),
            test_samples,
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
