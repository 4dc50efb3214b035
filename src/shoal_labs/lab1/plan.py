"""What Lab 1 trains: the optimizers, the learning rates that are tried, how long and how often."""

from dataclasses import dataclass, field
from typing import Literal

from shoal.kit.settings import (
    AdamConfig,
    BuiltInDataConfig,
    Custom,
    GdConfig,
    LenetConfig,
    MlpConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    SgdConfig,
    TrainConfig,
)
from shoal_labs.runs import ONLY_AT_THE_END

Name = Literal["gd", "sgd", "adam"]
NAMES: tuple[Name, ...] = ("gd", "sgd", "adam")
OPTIMIZERS: dict[Name, type[GdConfig | SgdConfig | AdamConfig]] = {
    "gd": GdConfig,
    "sgd": SgdConfig,
    "adam": AdamConfig,
}

RATES: dict[Name, tuple[float, ...]] = {
    "gd": (0.03, 0.1, 0.3, 1.0),
    "sgd": (0.03, 0.1, 0.3, 1.0),
    "adam": (3e-4, 1e-3, 3e-3, 1e-2),
}
"""A decade and a half around each optimizer's usual rate: the same number of candidates for each."""
QUICK_RATES: dict[Name, tuple[float, ...]] = {
    "gd": (0.03, 0.1, 0.3, 1.0, 3.0),
    "sgd": (0.03, 0.1, 0.3, 1.0, 3.0),
    "adam": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
}
"""Two decades each, for the network of a quick run."""

STUDENTS = "shoal_labs.student.nodes.lab1:student_optimizer"
"""Builds the optimizer of a student's file, in a process that can import it."""
BATCH_SIZE = 64
QUICK_MODEL = MlpConfig()
"""Of a quick run. It leaves the plateau at the start sooner than convolutions do: few steps show a difference."""


@dataclass(frozen=True)
class Lab1Size:
    """How much is trained. A pass goes once through the training set: one step of GD, many of SGD."""

    gd_passes: int
    stochastic_passes: int
    seeds: int
    """Optimizers are compared seed by seed, so all have the same ones."""
    sweep_part: int
    """A candidate of the search gets the final run's passes divided by this, at least one.

    GD is unstable at too large a rate only once its loss begins to fall, so a short final run is searched in full.
    """
    contest_s: float = 20.0
    """Seconds in which steps of two optimizers take turns."""


FULL: dict[str, Lab1Size] = {
    "digits": Lab1Size(40, 4, seeds=5, sweep_part=4),
    "mnist": Lab1Size(40, 4, seeds=5, sweep_part=4),
    "fashion-mnist": Lab1Size(40, 4, seeds=5, sweep_part=4),
}
QUICK = Lab1Size(20, 15, seeds=11, sweep_part=1, contest_s=5.0)
DATA = tuple(FULL)
FULL_VALIDATION, QUICK_VALIDATION = 0.1, 0.2
"""Part of the training set held out."""
QUICK_SAMPLES = 1000
"""Samples of the training set that a quick run uses: few, so that GD makes twenty steps and SGD nears a minimum."""


@dataclass(frozen=True)
class Lab1Plan:
    """The whole experiment."""

    data: BuiltInDataConfig
    size: Lab1Size
    first_seed: int = 0
    quick: bool = False
    model: ModelConfig = field(default_factory=LenetConfig)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    code: str = ""
    """The fingerprint of a student's code, whose optimizers are then used; empty: ours."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every repetition's seed: initial weights and order of samples. The search uses the first."""
        return tuple(range(self.first_seed, self.first_seed + self.size.seeds))

    def rates(self, name: Name) -> tuple[float, ...]:
        """The candidates of the search."""
        return (QUICK_RATES if self.quick else RATES)[name]

    def passes(self, name: Name) -> int:
        """Passes of a final run."""
        return self.size.gd_passes if name == "gd" else self.size.stochastic_passes

    def sweep_passes(self, name: Name) -> int:
        """Passes of a candidate's run: the same part of the final ones for every optimizer."""
        return max(1, self.passes(name) // self.size.sweep_part)

    def optimizer(self, name: Name, rate: float) -> OptimizerConfig:
        """An optimizer as the settings of a run name it."""
        if self.code:
            return Custom(STUDENTS, (("rule", name), ("lr", rate), ("code", self.code)))
        # The readable step, so that the code which the report shows is the code that ran.
        return OPTIMIZERS[name](lr=rate, fast=False)

    def config(self, name: Name, rate: float, seed: int, passes: int, test: bool) -> RunConfig:
        """One run of the experiment; `test` says whether it may read the test set."""
        return RunConfig(
            seed=seed,
            device=self.device,
            data=self.data,
            model=self.model,
            optimizer=self.optimizer(name, rate),
            train=TrainConfig(epochs=passes, batch_size="all" if name == "gd" else BATCH_SIZE, test=test),
            checkpoint=ONLY_AT_THE_END,
        )


def plan_for(data: BuiltInDataConfig, quick: bool, first_seed: int) -> Lab1Plan:
    """The plan for one of the lab's data sets."""
    if quick:
        return Lab1Plan(data, QUICK, first_seed, quick, QUICK_MODEL)
    return Lab1Plan(data, FULL[data.name], first_seed)
