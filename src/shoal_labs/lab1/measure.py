"""The numbers that the findings rest on, read from run folders alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shoal import data, models
from shoal.kit.runs import Array, Curve, Run, read_run
from shoal.kit.settings import RunConfig, to_plain
from shoal_labs.lab1.experiment import Sweep, train
from shoal_labs.lab1.noise import Noise, noise_of, whole_loss_after
from shoal_labs.lab1.pace import StepTimes, samples_of, step_times
from shoal_labs.lab1.plan import NAMES, Lab1Plan, Name
from shoal_labs.numbers import sample_counts
from shoal_labs.runs import Runs

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

    def last_losses(self) -> list[float]:
        """The smoothed loss at the end, seed by seed."""
        return [float(loss[-1]) for loss in self.smoothed()]

    def losses_at(self, axis: str, ends: Sequence[float]) -> list[float]:
        """The smoothed loss where each run has reached its value on an axis, seed by seed."""
        found = zip(self.curves, self.smoothed(), ends, strict=True)
        return [float(loss[at(axis, end)(curve)]) for curve, loss, end in found]

    def ends(self, axis: str) -> list[float]:
        """Where the curves end on an axis, seed by seed."""
        return [float(getattr(curve, axis)[-1]) for curve in self.curves]

    def results(self, key: str) -> list[float]:
        """A number of the closing records, seed by seed."""
        return [float(run.result[key]) for run in self.runs]

    def samples(self) -> int:
        """Samples that one run has gone through."""
        return self.runs[0].samples


@dataclass(frozen=True)
class Lab1Measurements:
    """Everything measured."""

    plan: Lab1Plan
    samples: Mapping[str, int]
    """Sizes of the training, validation and test part."""
    parameters: int
    series: Mapping[Name, Series]
    sweeps: Mapping[Name, Sweep]
    noise: tuple[Noise, ...]
    """Of SGD, seed by seed."""
    sgd_whole_losses: tuple[float, ...]
    """SGD's loss on the whole training set after as many steps as GD's last loss, seed by seed."""
    steps: StepTimes
    """One step of each optimizer, round by round."""
    step_samples: Mapping[Name, int]
    """The samples of these steps."""


def measure(plan: Lab1Plan, runs: Runs) -> Lab1Measurements:
    """Train, read every run folder, and measure the noise of the gradient."""
    made = train(plan, runs)
    series: dict[Name, Series] = {
        name: Series(name, tuple(map(read_run, made.final[name]))) for name in NAMES
    }

    def final(name: Name, seed: int) -> RunConfig:
        return plan.config(name, made.sweeps[name].best.rate, seed, plan.passes(name), test=False)

    runs.say("progress.noise")
    dataset = data.load(plan.data)
    model = models.build(plan.model, dataset.input_shape, dataset.outputs, plan.first_seed)
    return Lab1Measurements(
        plan=plan,
        samples=sample_counts(dataset),
        parameters=sum(param.numel() for param in model.parameters()),
        series=series,
        sweeps=made.sweeps,
        noise=tuple(noise_of(run) for run in made.final["sgd"]),
        sgd_whole_losses=tuple(
            runs.host.call(whole_loss_after, to_plain(final("sgd", seed)), round(steps))
            for seed, steps in zip(plan.seeds, series["gd"].ends("steps"), strict=True)
        ),
        steps=step_times(
            {name: final(name, plan.first_seed) for name in NAMES}, runs.host, plan.size.contest_s
        ),
        step_samples={name: samples_of(name, dataset) for name in NAMES},
    )


def at(axis: str, value: float) -> Callable[[Curve], int]:
    """The first place of a curve that has reached a value on an axis (steps, samples, seconds), or its last place.

    Where a curve ends before, it is compared as it ended.
    """

    def index(curve: Curve) -> int:
        places: Array = getattr(curve, axis)
        return min(int(np.searchsorted(places, value)), len(places) - 1)

    return index
