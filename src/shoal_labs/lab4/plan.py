"""The runs of Lab 4: one model, divided among workers in every way, and one machine.

::

    single, all-cores   one process, on one core and on all
    rpc, rpc-4          stages over remote procedure calls, with the whole batch and with micro-batches
    sequential, …       a pipeline under every schedule; each worker is a stage
    tensor              every layer divided among all workers
    microbatches-m      the 1F1B schedule with other numbers of micro-batches
    cut-<layer>         two stages, divided at another layer
    *-roundN            a few steps of all of these in turns (timing/turns.py): the times that are compared
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shoal.kit.base import ConfigError
from shoal.kit.settings import (
    DataConfig,
    DigitsConfig,
    LaunchConfig,
    LenetConfig,
    NoSyncConfig,
    OutputConfig,
    PipelineConfig,
    RpcConfig,
    RunConfig,
    SgdConfig,
    TrainConfig,
)
from shoal.kit.training import threads_per_worker
from shoal_labs.runs import NEVER, ONLY_AT_THE_END

BATCH_SIZE = 128
RATE, MOMENTUM = 0.05, 0.9
MICROBATCHES = 4
SCHEDULES = ("sequential", "gpipe", "1f1b", "zero-bubble")
CUTS = ("conv2", "fc1", "fc2")
"""Layers of lenet at which the second of two stages can begin."""
STAGES: Mapping[int, tuple[str, ...]] = {1: (), 2: ("fc1",), 3: ("conv2", "fc1"), 4: ("conv2", "fc1", "fc2")}
"""Where lenet is cut, by number of stages. Fixed, so that every run and every machine has the same stages."""
MOST_WORKERS = max(STAGES)
BASES = {"gpipe": "sequential", "zero-bubble": "1f1b", "tensor": "single", "1f1b": "single"}
"""Which run of the first contest is compared with which: as long as these are too close, more rounds are made."""


@dataclass(frozen=True)
class Lab4Size:
    """How much is trained."""

    epochs: int
    """Of the runs whose accuracy is shown."""
    timed_epochs: int
    """Of the runs of which only the timelines are used."""
    rounds: int
    """In which runs take turns to be timed, at first."""
    rpc_rounds: int
    """Of the runs over RPC, which start processes of their own each time."""
    round_steps: int
    microbatches: tuple[int, ...]
    most: int = 1
    """How many times as many rounds there may be, if they scatter too much to decide."""
    contest_s: float = math.inf
    """Seconds in which more rounds of one contest may be made."""


FULL = Lab4Size(
    epochs=5,
    timed_epochs=3,
    rounds=12,
    rpc_rounds=6,
    round_steps=12,
    microbatches=(1, 2, 4, 8),
    most=4,
    contest_s=240.0,
)
QUICK = Lab4Size(
    epochs=4,
    timed_epochs=1,
    rounds=4,
    rpc_rounds=4,
    round_steps=8,
    microbatches=(1, 2, 4, 8),
    most=6,
    contest_s=25.0,
)
FULL_DATA = DigitsConfig(samples=2400, validation=1 / 6)
QUICK_DATA = DigitsConfig(samples=1200, validation=1 / 6)


@dataclass(frozen=True)
class Lab4Plan:
    """The whole experiment."""

    workers: int
    size: Lab4Size
    seed: int = 0
    quick: bool = False
    data: DataConfig = field(default_factory=lambda: FULL_DATA)
    launcher: Literal["processes", "threads"] = "processes"
    """Of all runs but those over RPC. Threads share one interpreter, so their times mean little."""

    def __post_init__(self) -> None:
        if not 2 <= self.workers <= MOST_WORKERS:
            raise ConfigError(
                f"this lab needs 2 to {MOST_WORKERS} workers, one for each layer of lenet at most, "
                f"got --workers {self.workers}",
                "Try --workers 3.",
            )

    @property
    def cores(self) -> int:
        """Cores that one process may use."""
        return threads_per_worker(1)

    @property
    def ways(self) -> tuple[str, ...]:
        """The runs that train in full, one machine first."""
        return ("single", "rpc", f"rpc-{MICROBATCHES}", *SCHEDULES, "tensor")

    @property
    def rpc_stages(self) -> int:
        """The driver holds a stage only if there are no more than two workers."""
        return max(2, self.workers - 1)

    def counted(self) -> dict[int, str]:
        """The run of each number of micro-batches."""
        return {
            count: "1f1b" if count == MICROBATCHES else f"microbatches-{count}"
            for count in self.size.microbatches
        }

    def cuts(self) -> dict[str, str]:
        """The run of each cut."""
        return {layer: f"cut-{layer}" for layer in CUTS}

    def stages_of(self, run: str) -> int:
        """The number of stages of a pipeline."""
        return 2 if run.startswith("cut-") else self.workers

    def runs(self) -> dict[str, RunConfig]:
        """Every run by name, in the order in which they are trained."""
        runs = {"single": self._run(1, sync=NoSyncConfig())}
        for name, microbatches in (("rpc", 1), (f"rpc-{MICROBATCHES}", MICROBATCHES)):
            runs[name] = self._rpc(microbatches)
        for name in SCHEDULES:
            runs[name] = self._pipeline(self.workers, name)
        runs["tensor"] = self._run(self.workers, mesh=f"tensor={self.workers}")
        timed = {"all-cores": replace(runs["single"], threads=self.cores)}
        for count, name in self.counted().items():
            if name not in runs:
                timed[name] = self._pipeline(self.workers, "1f1b", count)
        for layer, name in self.cuts().items():
            timed[name] = self._pipeline(2, "1f1b", cut=(layer,))
        return {**runs, **{name: self._only_timed(config) for name, config in timed.items()}}

    def contests(self) -> dict[str, dict[str, RunConfig]]:
        """The runs that take turns, by what they are: the same workers make all of one contest."""
        runs = self.runs()
        pipelines = [name for name in runs if runs[name].mesh == f"pipeline={self.workers}"]
        cuts = list(self.cuts().values())
        names = {
            "schedules": [*(name for name in pipelines if name not in cuts), "tensor", "single", "all-cores"],
            "rpc": ["rpc", f"rpc-{MICROBATCHES}"],
            "cuts": cuts,
        }
        return {contest: {name: self._round(runs[name]) for name in its} for contest, its in names.items()}

    def rounds_of(self, contest: str) -> int:
        """The rounds that a contest begins with."""
        return self.size.rpc_rounds if contest == "rpc" else self.size.rounds

    def _round(self, config: RunConfig) -> RunConfig:
        train = replace(config.train, epochs=NEVER, steps=self.size.round_steps, test=False)
        return replace(config, train=train, checkpoint=ONLY_AT_THE_END)

    def _rpc(self, microbatches: int) -> RunConfig:
        cut = ",".join(STAGES[self.rpc_stages])
        # Torch has one RPC agent in each process.
        launch = LaunchConfig(workers=self.workers, launcher="processes")
        return self._run(self.workers, sync=RpcConfig(microbatches=microbatches, cut=cut), launch=launch)

    def _pipeline(
        self, stages: int, schedule: str, microbatches: int = MICROBATCHES, cut: tuple[str, ...] = ()
    ) -> RunConfig:
        pipeline = PipelineConfig(
            schedule=schedule,  # pyright: ignore[reportArgumentType]
            microbatches=microbatches,
            cut=cut or STAGES[stages],
        )
        return self._run(stages, mesh=f"pipeline={stages}", pipeline=pipeline)

    def _only_timed(self, config: RunConfig) -> RunConfig:
        return replace(config, train=replace(config.train, epochs=self.size.timed_epochs, test=False))

    def _run(self, workers: int, **division: Any) -> RunConfig:
        """The same training, divided in this way."""
        settings: dict[str, Any] = {
            "seed": self.seed,
            "device": "cpu",
            "threads": 1,
            "data": self.data,
            "model": LenetConfig(),
            "optimizer": SgdConfig(lr=RATE, momentum=MOMENTUM),
            "launch": LaunchConfig(workers=workers, launcher=self.launcher),
            "train": TrainConfig(epochs=self.size.epochs, batch_size=BATCH_SIZE),
            "checkpoint": replace(ONLY_AT_THE_END, first_step=True),
            "output": OutputConfig(trace=True),
        }
        return RunConfig(**{**settings, **division})


def plan_for(workers: int, quick: bool, seed: int) -> Lab4Plan:
    """The plan of a run."""
    return Lab4Plan(workers, QUICK if quick else FULL, seed, quick, QUICK_DATA if quick else FULL_DATA)
