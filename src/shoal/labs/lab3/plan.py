"""The runs of Lab 3: every division of the data, with every number of workers, and one machine.

::

    single-*          one machine, with every seed
    reference-*       one process for its speed, on one core and on all, repeated between the timed runs: they show
                      whether the machine was busy for a while
    <division>-4w-*   the same training with the data divided; the first seed by processes, whose times are used,
                      the others by threads
    slow-random-4w    equal parts where one worker is slow: the baseline of parts by speed
    equal-*           a few steps, then the weights are compared
    own-*             a training loop of the lab's own with a sampler for each worker, right or wrong (own_loop.py)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from shoal.config import schema
from shoal.errors import ConfigError
from shoal.labs.runs import NEVER, ONLY_AT_THE_END
from shoal.launch.cores import threads_per_worker

BATCH_SIZE = 64
RATE = 4e-3
"""Learning rate of Adam, the optimizer of all runs but equal-*."""
EQUAL_RATE = 0.1
"""Of SGD, where weights are compared: Adam divides by small numbers and amplifies rounding errors."""
SLOW, SLOWDOWN = 1, 2
"""The rank of the slow worker, and how many times as long it computes."""
MOST_WORKERS = 10
"""The number of labels: one of the divisions gives each label to one worker."""
TIMED_AT_ONCE = 3
"""Timed runs between two timings of one process."""

DIVISIONS: Mapping[str, schema.PartitionConfig] = {
    "global": schema.GlobalConfig(),
    "random": schema.RandomConfig(),
    "sampling": schema.SamplingConfig(),
    "stratified": schema.StratifiedConfig(),
    "contiguous": schema.ContiguousConfig(),
    "hash": schema.HashConfig(),
    "speed": schema.SpeedConfig(),
    "dirichlet-1": schema.DirichletConfig(alpha=1.0),
    "dirichlet-0.1": schema.DirichletConfig(alpha=0.1),
    "label": schema.LabelConfig(),
}
ALIKE = ("global", "random", "sampling", "stratified", "contiguous", "hash", "speed")
"""Each worker's labels have, up to chance, the proportions of the whole set."""
UNLIKE = ("dirichlet-1", "dirichlet-0.1", "label")
"""They do not: the data of the workers are not identically distributed (non-IID)."""
PARTITIONS = tuple(name for name in DIVISIONS if name not in ("global", "sampling"))
"""Every sample has an owner."""


def partition_of(division: str, workers: int) -> schema.PartitionConfig:
    """The setting of a division; parts by speed need the speed of every worker."""
    if division == "speed":
        return schema.SpeedConfig(
            speeds=tuple(1.0 if rank == SLOW else float(SLOWDOWN) for rank in range(workers))
        )
    return DIVISIONS[division]


@dataclass(frozen=True)
class Size:
    """How much is trained."""

    epochs: int
    seeds: int
    timed: tuple[str, ...]
    """Divisions whose first run is made by processes, so that its times can be used."""
    slow_epochs: int
    equal_steps: int
    """Few: after many steps, rounding alone makes two runs differ."""


FULL = Size(epochs=5, seeds=3, timed=tuple(DIVISIONS), slow_epochs=2, equal_steps=20)
QUICK = Size(
    epochs=3, seeds=2, timed=("global", "random", "dirichlet-0.1", "speed"), slow_epochs=2, equal_steps=10
)
FULL_DATA = schema.DigitsConfig(samples=1200, validation=1 / 3)
QUICK_DATA = schema.DigitsConfig(samples=600, validation=1 / 3)


@dataclass(frozen=True)
class Plan:
    """The whole experiment."""

    workers: tuple[int, ...]
    size: Size
    first_seed: int = 0
    quick: bool = False
    data: schema.DataConfig = field(default_factory=lambda: FULL_DATA)
    model: schema.ModelConfig = field(default_factory=schema.LenetConfig)
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
    def seeds(self) -> tuple[int, ...]:
        """The seeds of repeated runs; runs that are not repeated have the first."""
        return tuple(range(self.first_seed, self.first_seed + self.size.seeds))

    def seeds_of(self, workers: int) -> tuple[int, ...]:
        """The seeds of runs with this many workers: all for the largest number, which the findings use; else two."""
        return self.seeds if workers == self.most else self.seeds[:2]

    def runs(self) -> dict[str, schema.RunConfig]:
        """Every run by name, in the order in which they are trained."""
        runs = {**self._single(), **self._equal()}
        for workers in self.workers:
            runs |= self._divided(workers)
        return runs

    def own(self, workers: int, seed: int) -> schema.RunConfig:
        """The settings of a run by the lab's own loop."""
        return self._run(seed, workers)

    def _single(self) -> dict[str, schema.RunConfig]:
        return {f"single-seed{seed}": self._alone(seed) for seed in self.seeds}

    def _alone(self, seed: int, threads: int = 1) -> schema.RunConfig:
        return replace(self._run(seed), sync=schema.NoSyncConfig(), threads=threads)

    def _divided(self, workers: int) -> dict[str, schema.RunConfig]:
        runs = self._timed_runs(workers)
        for seed in self.seeds_of(workers):
            for division in DIVISIONS:
                if (name := run_name(division, workers, seed)) not in runs:
                    config = self._run(seed, workers)
                    runs[name] = replace(config, partition=partition_of(division, workers))
        return runs

    def _timed_runs(self, workers: int) -> dict[str, schema.RunConfig]:
        """The runs whose times are used, and one process between them."""
        plain = self._run(self.first_seed, workers)
        timed = {
            run_name(name, workers, self.first_seed): self._timed(
                replace(plain, partition=partition_of(name, workers)), slow=name == "speed"
            )
            for name in self.size.timed
        }
        timed[f"slow-random-{workers}w"] = self._timed(
            _shortened(replace(plain, partition=schema.RandomConfig()), self.size.slow_epochs), slow=True
        )
        runs: dict[str, schema.RunConfig] = {}
        for number, (name, config) in enumerate(timed.items()):
            if number % TIMED_AT_ONCE == 0:
                for cores, threads in (("one-core", 1), ("all-cores", self.cores)):
                    reference = _shortened(self._alone(self.first_seed, threads), epochs=1)
                    runs[f"reference-{cores}-{workers}w-{number // TIMED_AT_ONCE}"] = reference
            runs[name] = config
        return runs

    def _timed(self, config: schema.RunConfig, slow: bool) -> schema.RunConfig:
        """The same run by processes that share all cores, with its times recorded."""
        bottleneck = (f"rank={SLOW},slowdown={SLOWDOWN}",) if slow else ()
        return replace(
            config,
            threads=threads_per_worker(config.launch.workers),
            launch=replace(config.launch, launcher=self.timed_launcher, bottleneck=bottleneck),
            output=replace(config.output, trace=True),
        )

    def _equal(self) -> dict[str, schema.RunConfig]:
        """The same first steps on one machine and with every step divided among the workers."""
        sgd = schema.SgdConfig(lr=EQUAL_RATE)
        runs = {"equal-single": replace(self._alone(self.first_seed), optimizer=sgd)}
        for workers in self.workers:
            runs[f"equal-global-{workers}w"] = self._run(self.first_seed, workers, sgd)
        return {
            name: replace(
                config,
                train=replace(config.train, epochs=NEVER, steps=self.size.equal_steps, test=False),
            )
            for name, config in runs.items()
        }

    def _run(
        self, seed: int, workers: int = 1, optimizer: schema.OptimizerConfig | None = None
    ) -> schema.RunConfig:
        return schema.RunConfig(
            seed=seed,
            device=self.device,
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=optimizer or schema.AdamConfig(lr=RATE),
            sync=schema.DdpConfig(),
            launch=schema.LaunchConfig(workers=workers, launcher="threads"),
            train=schema.TrainConfig(epochs=self.size.epochs, batch_size=BATCH_SIZE),
            checkpoint=ONLY_AT_THE_END,
        )


def _shortened(config: schema.RunConfig, epochs: int) -> schema.RunConfig:
    """A run of which only the times are used."""
    return replace(config, train=replace(config.train, epochs=epochs, test=False))


def run_name(division: str, workers: int, seed: int) -> str:
    """The name of a run with the data divided.

    >>> run_name("label", 4, 0)
    'label-4w-seed0'
    """
    return f"{division}-{workers}w-seed{seed}"


def plan_for(workers: str, quick: bool, first_seed: int) -> Plan:
    """The plan of a run; `workers` is a list such as 2,4."""
    try:
        numbers = {int(each) for each in workers.split(",")}
    except ValueError:
        raise ConfigError(
            f"--workers of this lab: expected integers separated by commas, got '{workers}'",
            "Try --workers 2,4.",
        ) from None
    data = QUICK_DATA if quick else FULL_DATA
    return Plan(tuple(sorted(numbers)), QUICK if quick else FULL, first_seed, quick, data)
