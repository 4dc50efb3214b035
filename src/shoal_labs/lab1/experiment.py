"""All runs of the lab: for each optimizer a search of the learning rate, then the final runs with every seed.

The search is short, the same for every optimizer, and decided by the validation loss. Phase 1: try every candidate.
Phase 2: if the best is the smallest or the largest, it may not be the best at all, so the grid is extended once beyond
that edge. Phase 3: choose.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.kit.base import DivergedError, Phrase
from shoal.kit.runs import RunFolder
from shoal.kit.settings import RunConfig
from shoal.kit.training import Result, Silent
from shoal_labs.lab1.plan import NAMES, Lab1Plan, Name
from shoal_labs.runs import Runs

EXTENSION = 2
"""Candidates added beyond an edge."""
TRAINS_WITHIN = 2.0
"""A rate counts as one that trains when its validation loss is at most this many times the best one's."""


@dataclass(frozen=True)
class Trial:
    """A candidate and what came of it; a loss that is not a number any more counts as infinite."""

    rate: float
    validation_loss: float

    @property
    def diverged(self) -> bool:
        """Whether the run stopped because its loss was no number any more."""
        return math.isinf(self.validation_loss)


@dataclass(frozen=True)
class Sweep:
    """A finished search, candidates in rising order."""

    optimizer: str
    trials: tuple[Trial, ...]
    extended: int
    """How many candidates were added because the best stood at the edge."""

    @property
    def best(self) -> Trial:
        """The candidate with the lowest validation loss."""
        return min(self.trials, key=lambda trial: trial.validation_loss)

    @property
    def at_edge(self) -> bool:
        """Whether the best is still the first or the last candidate: a better one may lie beyond."""
        return self.best in (self.trials[0], self.trials[-1])

    def rates_that_train(self) -> int:
        """How many candidates come near the best."""
        limit = TRAINS_WITHIN * self.best.validation_loss
        return sum(trial.validation_loss <= limit for trial in self.trials)


def sweep(optimizer: str, rates: Sequence[float], validation_loss: Callable[[float], float]) -> Sweep:
    """Find the best of these rates by `validation_loss(rate)`, which trains with it (inf if training diverged).

    >>> sweep("sgd", [0.1, 0.3, 1.0], lambda rate: abs(rate - 0.3)).best.rate
    0.3
    >>> [trial.rate for trial in sweep("sgd", [0.1, 0.3, 1.0], lambda rate: abs(rate - 3.0)).trials]
    [0.1, 0.3, 1.0, 3.0, 10.0]
    """
    first = tuple(Trial(rate, validation_loss(rate)) for rate in sorted(rates))
    result = Sweep(optimizer, first, extended=0)
    if all(trial.diverged for trial in first):
        raise DivergedError(
            f"{optimizer} diverges at every learning rate from {first[0].rate:g} to {first[-1].rate:g}"
        )
    if not result.at_edge or len(first) < 2:
        return result
    beyond = [Trial(rate, validation_loss(rate)) for rate in _beyond(result)]
    return Sweep(optimizer, tuple(sorted((*first, *beyond), key=lambda trial: trial.rate)), len(beyond))


def _beyond(result: Sweep) -> list[float]:
    """The next candidates outside, at the grid's own distances: 0.3, 1.0 are followed by 3.0, 10.0."""
    rates = [trial.rate for trial in result.trials]
    upwards = result.best == result.trials[-1]
    last, before = (rates[-1], rates[-2]) if upwards else (rates[0], rates[1])
    decade = 10.0 if upwards else 0.1
    return [float(f"{rate:.3g}") for rate in (before * decade, last * decade)][:EXTENSION]


@dataclass(frozen=True)
class Experiment:
    """What was trained."""

    sweeps: Mapping[Name, Sweep]
    final: Mapping[Name, tuple[Path, ...]]
    """Run folders, one per seed."""


def train(plan: Lab1Plan, runs: Runs) -> Experiment:
    """Choose each learning rate, then train with it."""
    timed = _Timed(plan, runs)
    sweeps: dict[Name, Sweep] = {name: _sweep(plan, name, timed) for name in NAMES}
    final: dict[Name, tuple[Path, ...]] = dict.fromkeys(NAMES, ())
    # Seed by seed and not optimizer by optimizer: if the machine slows down for a while, it does so for all three.
    for seed in plan.seeds:
        for name in NAMES:
            rate = sweeps[name].best.rate
            if seed == plan.first_seed and plan.sweep_passes(name) == plan.passes(name):
                path = _read_test(plan, name, rate, runs)
            else:
                path = _train_final(plan, name, rate, seed, timed)
            final[name] = (*final[name], path)
    return Experiment(sweeps, final)


def sweep_notes(result: Sweep) -> list[Phrase]:
    """Remarks on a search whose best candidate was at the edge of the grid."""
    name, notes = Phrase(f"name.{result.optimizer}"), list[Phrase]()
    if result.extended:
        notes.append(Phrase("sweep.extended", {"optimizer": name, "added": result.extended}))
    if result.at_edge:
        notes.append(Phrase("sweep.at_edge", {"optimizer": name, "rate": result.best.rate}))
    return notes


def sweep_run(name: Name, rate: float) -> str:
    """The name of a candidate's run."""
    return f"sweep-{name}-{rate:g}"


def _read_test(plan: Lab1Plan, name: Name, rate: float, runs: Runs) -> Path:
    """Evaluate a run of the search on the test set, which the search itself must not read."""
    run = sweep_run(name, rate)
    config = plan.config(name, rate, plan.first_seed, plan.passes(name), test=True)
    runs.host.train(runs.placed(run, config), Silent(), RunFolder(runs.path(run)))
    return runs.path(run)


class _Timed:
    """The runs, each with the time left if a pass over the data takes as long as in those before."""

    def __init__(self, plan: Lab1Plan, runs: Runs) -> None:
        self.runs, self._began, self._done = runs, time.monotonic(), 0
        self._left = sum(
            len(plan.rates(name)) * plan.sweep_passes(name) + len(plan.seeds) * plan.passes(name)
            for name in NAMES
        )

    def train(self, run: str, config: RunConfig, label: str) -> Result:
        """The result of one run. Passes of a run taken over from an earlier report say nothing about time."""
        passes = config.train.epochs
        try:
            shown = self.runs.with_time_left(label, self._began, self._done, self._left)
            return self.runs.train(run, config, shown)
        finally:
            self._left = max(0, self._left - passes)
            self._done += passes if run in self.runs.trained else 0


def _sweep(plan: Lab1Plan, name: Name, timed: _Timed) -> Sweep:
    runs = timed.runs
    label = runs.words(f"name.{name}")
    runs.say("progress.sweep", optimizer=label, passes=plan.sweep_passes(name))

    def validation_loss(rate: float) -> float:
        config = plan.config(name, rate, plan.first_seed, plan.sweep_passes(name), test=False)
        try:
            loss = timed.train(sweep_run(name, rate), config, f"{label}, η = {rate:g}").validation_loss
        except DivergedError:
            loss = math.inf
        assert loss is not None, "a lab's run has a validation part"
        shown = runs.words("sweep.diverged") if math.isinf(loss) else f"{loss:.4f}"
        runs.say("progress.trial", rate=rate, loss=shown)
        return loss

    result = sweep(name, plan.rates(name), validation_loss)
    for note in sweep_notes(result):
        runs.watch.say(f"  {runs.words.shown(note)}")
    runs.say("progress.chosen", rate=result.best.rate)
    return result


def _train_final(plan: Lab1Plan, name: Name, rate: float, seed: int, timed: _Timed) -> Path:
    runs = timed.runs
    config = plan.config(name, rate, seed, plan.passes(name), test=True)
    label = runs.words("progress.running", optimizer=runs.words(f"name.{name}"), rate=rate, seed=seed)
    result = timed.train(f"{name}-seed{seed}", config, label)
    runs.say(
        "progress.final",
        label=label,
        steps=result.steps,
        loss=result.final_loss,
        accuracy=100 * (result.test_accuracy or 0.0),
        seconds=result.seconds,
    )
    return Path(result.run)
