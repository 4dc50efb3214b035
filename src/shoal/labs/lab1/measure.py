"""The numbers that the findings rest on, read from run folders alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from shoal import data, models
from shoal.labs.lab1.experiment import train
from shoal.labs.lab1.noise import Noise, noise_of
from shoal.labs.lab1.plan import MODEL, NAMES, Name, Plan
from shoal.labs.lab1.sweep import Sweep
from shoal.labs.numbers import sample_counts
from shoal.labs.runs import Runs
from shoal.report.findings import Measured, inside_run, over_seeds
from shoal.report.runs import Array, Curve, Run, read_run

WINDOW = 20
"""Steps that the loss of SGD and Adam is averaged over: one batch says little. GD's is exact and stays as it is."""


@dataclass(frozen=True)
class Series:
    """The final runs of one optimizer, one per seed."""

    name: Name
    runs: tuple[Run, ...]

    @property
    def window(self) -> int:
        """Steps of the moving mean."""
        return 1 if self.name == "gd" else WINDOW

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The curves, seed by seed."""
        return tuple(run.curve for run in self.runs)

    def smoothed(self) -> list[Array]:
        """The smoothed loss, seed by seed."""
        return [curve.smoothed(self.window) for curve in self.curves]

    def losses(self, index: Callable[[Curve], int]) -> Measured:
        """The smoothed loss at one place of every curve, over the seeds."""
        return over_seeds(
            [float(loss[index(c)]) for c, loss in zip(self.curves, self.smoothed(), strict=True)]
        )

    def results(self, key: str) -> Measured:
        """A number of the closing records, over the seeds."""
        return over_seeds([float(run.result[key]) for run in self.runs])

    def step_ms(self) -> Measured:
        """Time of one step, over the steps of all runs."""
        steps = [float(second) for curve in self.curves for second in curve.step_seconds()]
        return inside_run([1000 * second for second in steps])

    def samples(self) -> int:
        """Samples that one run has gone through."""
        return self.runs[0].samples


@dataclass(frozen=True)
class Measurements:
    """Everything measured."""

    plan: Plan
    samples: Mapping[str, int]
    """Sizes of the training, validation and test part."""
    parameters: int
    series: Mapping[Name, Series]
    sweeps: Mapping[Name, Sweep]
    noise: tuple[Noise, ...]


def measure(plan: Plan, runs: Runs) -> Measurements:
    """Train, read every run folder, and measure the noise of the gradient."""
    made = train(plan, runs)
    runs.say("progress.noise")
    dataset = data.load(plan.data)
    model = models.build(MODEL, dataset.input_shape, dataset.outputs, plan.first_seed)
    return Measurements(
        plan=plan,
        samples=sample_counts(dataset),
        parameters=sum(param.numel() for param in model.parameters()),
        series={name: Series(name, tuple(map(read_run, made.final[name]))) for name in NAMES},
        sweeps=made.sweeps,
        noise=tuple(noise_of(run) for run in made.final["sgd"][: 1 if plan.quick else None]),
    )


def at(axis: str, value: float) -> Callable[[Curve], int]:
    """The first place of a curve that has reached a value on an axis (steps, samples, seconds), or its last place.

    Where a curve ends before, it is compared as it ended.
    """

    def index(curve: Curve) -> int:
        places: Array = getattr(curve, axis)
        return min(int(np.searchsorted(places, value)), len(places) - 1)

    return index


def last(curve: Curve) -> int:
    """The last place of a curve."""
    return len(curve.loss) - 1
