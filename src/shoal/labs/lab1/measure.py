"""Run folders become the numbers that the findings rest on. No number here comes from anywhere else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.labs.lab1.experiment import Runs
from shoal.labs.lab1.noise import Noise
from shoal.labs.lab1.plan import NAMES, Name
from shoal.labs.lab1.sweep import Sweep
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

    series: Mapping[Name, Series]
    sweeps: Mapping[Name, Sweep]
    noise: tuple[Noise, ...]


def measure(runs: Runs, noise: Sequence[Noise]) -> Measurements:
    """Read every run folder."""
    series: dict[Name, Series] = {
        name: Series(name, tuple(map(read_run, runs.final[name]))) for name in NAMES
    }
    return Measurements(series, runs.sweeps, tuple(noise))


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
