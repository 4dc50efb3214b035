"""The runs of Lab 3: every division of the data, with every number of workers, and one machine.

::

    single-*          one machine, with every seed
    <division>-4w-*   the same training with the data divided, by threads
    equal-*           a few steps, then the weights are compared; on a GPU one machine computes in the workers' parts
    timed-*-roundN    a few steps by processes, whose times are used, of some divisions and of one process on one core
                      and on all: they take turns (labs/timing). `slow` has equal parts where one worker is slow, the
                      baseline of parts by speed
    own-*             a training loop of the lab's own with a sampler for each worker, right or wrong (own_loop.py)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from shoal.kit.base import ConfigError
from shoal.kit.settings import (
    AdamConfig,
    ContiguousConfig,
    DataConfig,
    DdpConfig,
    DigitsConfig,
    DirichletConfig,
    GlobalConfig,
    HashConfig,
    LabelConfig,
    LaunchConfig,
    LenetConfig,
    MlpConfig,
    ModelConfig,
    NoSyncConfig,
    OptimizerConfig,
    PartitionConfig,
    RandomConfig,
    RunConfig,
    SamplingConfig,
    SgdConfig,
    SpeedConfig,
    StratifiedConfig,
    TrainConfig,
)
from shoal.kit.training import threads_per_worker
from shoal_labs.plans import in_parts, seeds_from
from shoal_labs.runs import NEVER, ONLY_AT_THE_END

BATCH_SIZE = 64
RATE = 4e-3
"""Learning rate of Adam, the optimizer of all runs but equal-*."""
EQUAL_RATE = 0.1
"""Of SGD, where weights are compared: Adam divides by small numbers and amplifies rounding errors."""
SLOW, SLOWDOWN = 1, 2
"""The rank of the slow worker, and how many times as long it computes."""
MOST_WORKERS = 10
"""The number of labels: one of the divisions gives each label to one worker."""
DIVISIONS: Mapping[str, PartitionConfig] = {
    "global": GlobalConfig(),
    "random": RandomConfig(),
    "sampling": SamplingConfig(),
    "stratified": StratifiedConfig(),
    "contiguous": ContiguousConfig(),
    "hash": HashConfig(),
    "speed": SpeedConfig(),
    "dirichlet-1": DirichletConfig(alpha=1.0),
    "dirichlet-0.1": DirichletConfig(alpha=0.1),
    "label": LabelConfig(),
}
ALIKE = ("global", "random", "sampling", "stratified", "contiguous", "hash", "speed")
"""Each worker's labels have, up to chance, the proportions of the whole set."""
UNLIKE = ("dirichlet-1", "dirichlet-0.1", "label")
"""They do not: the data of the workers are not identically distributed (non-IID)."""
DECIDING = ("random", "sampling", "label", "dirichlet-0.1")
"""Divisions whose accuracy the findings compare, seed by seed; the others are repeated less often."""
TIMED = ("global", "random", "dirichlet-0.1", "speed")
"""Divisions whose speed the findings compare."""
ONE_CORE, ALL_CORES, SLOW_RANDOM = "one-core", "all-cores", "slow"
"""The other runs that are timed."""
COMPARED = {ONE_CORE: "global", ALL_CORES: "global", "dirichlet-0.1": "random", SLOW_RANDOM: "speed"}
"""Times that findings compare in pairs: these are worth further rounds."""
PARTITIONS = tuple(name for name in DIVISIONS if name not in ("global", "sampling"))
"""Every sample has an owner."""


def partition_of(division: str, workers: int) -> PartitionConfig:
    """The setting of a division; parts by speed need the speed of every worker."""
    if division == "speed":
        return SpeedConfig(speeds=tuple(1.0 if rank == SLOW else float(SLOWDOWN) for rank in range(workers)))
    return DIVISIONS[division]


@dataclass(frozen=True)
class Lab3Size:
    """How much is trained."""

    epochs: int
    seeds: int
    few_seeds: int
    """Of runs that no finding compares seed by seed."""
    rounds: int
    """In which the timed runs take turns, with the number of workers whose speed the findings compare."""
    few_rounds: int
    """With other numbers of workers."""
    timed_steps: int
    equal_steps: int
    """Few: after many steps, rounding alone makes two runs differ."""
    most: int = 1
    """How many times as many rounds there may be, if they scatter too much to decide."""
    budget_s: float = math.inf
    """No further rounds are made if they would take longer than this with one number of workers."""
    model: ModelConfig = field(default_factory=LenetConfig)
    """Of all runs but the timed ones. A dense network of a short lab has learnt enough after few epochs."""


FULL = Lab3Size(
    epochs=6, seeds=10, few_seeds=3, rounds=41, few_rounds=31, timed_steps=16, equal_steps=20, most=2
)
QUICK = Lab3Size(
    epochs=4,
    seeds=10,
    few_seeds=1,
    rounds=11,
    few_rounds=8,
    timed_steps=12,
    equal_steps=10,
    most=2,
    budget_s=45.0,
    model=MlpConfig(),
)
DATA = DigitsConfig(samples=1800, validation=1 / 3)


@dataclass(frozen=True)
class Lab3Plan:
    """The whole experiment."""

    workers: tuple[int, ...]
    size: Lab3Size
    first_seed: int = 0
    quick: bool = False
    data: DataConfig = field(default_factory=lambda: DATA)
    timed_model: ModelConfig = field(default_factory=LenetConfig)
    device: Literal["cpu", "cuda"] = "cpu"
    timed_launcher: Literal["processes", "threads"] = "processes"
    """Threads share one interpreter, so their times mean little."""

    def __post_init__(self) -> None:
        for workers in self.workers:
            if not 2 <= workers <= MOST_WORKERS:
                raise ConfigError(
                    f"this lab needs 2 to {MOST_WORKERS} workers, got --workers {workers}",
                    "Try --workers 2,4.",
                )

    @property
    def most(self) -> int:
        """The largest number of workers."""
        return max(self.workers)

    @property
    def cores(self) -> int:
        """Cores that one process may use."""
        return threads_per_worker(1)

    @property
    def gpus(self) -> int:
        """GPUs that the workers share; 0 where they compute on the CPU."""
        return max(1, torch.cuda.device_count()) if self.device == "cuda" else 0

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of repeated runs; runs that are not repeated have the first."""
        return seeds_from(self.first_seed, self.size.seeds)

    def seeds_of(self, way: str, workers: int) -> tuple[int, ...]:
        """The seeds of a division or a sampler: all where a finding compares it, with the largest number of workers."""
        decides = workers == self.most and (way in DECIDING or way not in DIVISIONS)
        return self.seeds if decides else self.seeds[: self.size.few_seeds]

    @property
    def fitting(self) -> int:
        """The largest number of workers that still has a core for each; the smallest number where there is none."""
        return max((w for w in self.workers if w <= self.cores), default=min(self.workers))

    def runs(self) -> dict[str, RunConfig]:
        """Every run by name, in the order in which they are trained."""
        runs = {**self._single(), **self._equal()}
        for workers in self.workers:
            runs |= self._divided(workers)
        return runs

    def own(self, workers: int, seed: int) -> RunConfig:
        """The settings of a run by the lab's own loop."""
        return self._run(seed, workers)

    def _single(self) -> dict[str, RunConfig]:
        return {f"single-seed{seed}": self._alone(seed) for seed in self.seeds}

    def _alone(self, seed: int, threads: int = 1) -> RunConfig:
        return replace(self._run(seed), sync=NoSyncConfig(), threads=threads)

    def _divided(self, workers: int) -> dict[str, RunConfig]:
        return {
            run_name(division, workers, seed): replace(
                self._run(seed, workers), partition=partition_of(division, workers)
            )
            for division in DIVISIONS
            for seed in self.seeds_of(division, workers)
        }

    def rounds_of(self, workers: int) -> int:
        """The rounds in which runs with this number of workers take turns."""
        return self.size.rounds if workers == self.fitting else self.size.few_rounds

    def timed(self, workers: int) -> dict[str, RunConfig]:
        """The runs that take turns with this number of workers: divisions, and one process."""
        plain = self._run(self.first_seed, workers)
        divided = {
            name: self._timed(replace(plain, partition=partition_of(name, workers)), slow=name == "speed")
            for name in TIMED
        }
        divided[SLOW_RANDOM] = self._timed(replace(plain, partition=RandomConfig()), slow=True)
        alone = {
            ONE_CORE: self._alone(self.first_seed),
            ALL_CORES: self._alone(self.first_seed, self.cores),
        }
        return {
            timed_name(name, workers): replace(
                _shortened(config, self.size.timed_steps), model=self.timed_model
            )
            for name, config in {**divided, **alone}.items()
        }

    def _timed(self, config: RunConfig, slow: bool) -> RunConfig:
        """The same run by processes that share all cores, with its times recorded."""
        bottleneck = (f"rank={SLOW},slowdown={SLOWDOWN}",) if slow else ()
        return replace(
            config,
            threads=threads_per_worker(config.launch.workers),
            launch=replace(config.launch, launcher=self.timed_launcher, bottleneck=bottleneck),
            output=replace(config.output, trace=True),
        )

    def equal(self, workers: int) -> tuple[RunConfig, RunConfig]:
        """The same first steps on one machine, and with every step divided among the workers."""
        sgd = SgdConfig(lr=EQUAL_RATE)
        together = _shortened(self._run(self.first_seed, workers, sgd), self.size.equal_steps)
        alone = replace(self._alone(self.first_seed), optimizer=sgd, train=together.train)
        return in_parts(alone, workers), in_parts(together, workers)

    def _equal(self) -> dict[str, RunConfig]:
        runs: dict[str, RunConfig] = {}
        for workers in self.workers:
            runs[self.equal_single(workers)], runs[f"equal-global-{workers}w"] = self.equal(workers)
        return runs

    def equal_single(self, workers: int) -> str:
        """The name of the run on one machine with which these workers are compared."""
        return "equal-single" if self.device == "cpu" else f"equal-single-{workers}-parts"

    def _run(self, seed: int, workers: int = 1, optimizer: OptimizerConfig | None = None) -> RunConfig:
        return RunConfig(
            seed=seed,
            device=self.device,
            threads=1,
            data=self.data,
            model=self.size.model,
            optimizer=optimizer or AdamConfig(lr=RATE),
            sync=DdpConfig(),
            launch=LaunchConfig(workers=workers, launcher="threads"),
            train=TrainConfig(epochs=self.size.epochs, batch_size=BATCH_SIZE),
            checkpoint=ONLY_AT_THE_END,
        )


def _shortened(config: RunConfig, steps: int) -> RunConfig:
    """A run of which only the times are used."""
    return replace(config, train=replace(config.train, epochs=NEVER, steps=steps, test=False))


def timed_name(way: str, workers: int) -> str:
    """The name of a timed run, without its round.

    >>> timed_name("global", 4)
    'timed-global-4w'
    """
    return f"timed-{way}-{workers}w"


def run_name(division: str, workers: int, seed: int) -> str:
    """The name of a run with the data divided.

    >>> run_name("label", 4, 0)
    'label-4w-seed0'
    """
    return f"{division}-{workers}w-seed{seed}"


def plan_for(workers: str, quick: bool, first_seed: int) -> Lab3Plan:
    """The plan of a run; `workers` is a list such as 2,4."""
    try:
        numbers = {int(each) for each in workers.split(",")}
    except ValueError:
        raise ConfigError(
            f"--workers of this lab: expected integers separated by commas, got '{workers}'",
            "Try --workers 2,4.",
        ) from None
    return Lab3Plan(tuple(sorted(numbers)), QUICK if quick else FULL, first_seed, quick)
