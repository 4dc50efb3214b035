"""What Lab 3 runs: every division of the data, with every number of workers, against one machine.

::

    single-*          one machine, with every seed
    reference-*       one process for its speed, on one core and on all, again and again between the timed runs: should
                      the machine be busy for a while, the references tell
    <division>-4w-*   the same training with the data divided; the first seed by processes, whose times count, the
                      others by threads
    slow-random-4w    equal parts where one worker is slow: what parts by speed are compared with
    equal-*           a few steps, then the weights are compared
    own-*             a training loop of one's own with a sampler for each worker, right or wrong   (own_loop.py)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from shoal.config.schema import (
    AdamConfig,
    CheckpointConfig,
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
    ModelConfig,
    NoSyncConfig,
    OptimizerConfig,
    OutputConfig,
    PartitionConfig,
    RandomConfig,
    RunConfig,
    SamplingConfig,
    SgdConfig,
    SpeedConfig,
    StratifiedConfig,
    TrainConfig,
)
from shoal.errors import ConfigError
from shoal.launch.cores import threads_per_worker

BATCH_SIZE = 64
RATE = 4e-3
"""Learning rate of Adam, with which everything is trained."""
EQUAL_RATE = 0.1
"""Of SGD, where weights are compared: Adam divides by small numbers, and enlarges what rounding leaves."""
SLOW, SLOWDOWN = 1, 2
"""The rank of the slow worker, and how many times as long it computes."""
MOST_WORKERS = 10
"""As many as there are labels: one of the divisions gives every label to one worker."""
TIMED_AT_ONCE = 3
"""So many timed runs follow each other before one process is timed again."""
NEVER = 10**9
"""Steps between checkpoints: a lab's run is short, and only its end is worth saving."""

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
"""Each worker's labels are, up to chance, those of the whole."""
UNLIKE = ("dirichlet-1", "dirichlet-0.1", "label")
"""They are not: the data of the workers are not identically distributed (non-IID)."""
PARTITIONS = tuple(name for name in DIVISIONS if name not in ("global", "sampling"))
"""Every sample has an owner."""


def partition_of(division: str, workers: int) -> PartitionConfig:
    """The setting of a division; parts by speed need to know of every worker how fast it is."""
    if division == "speed":
        return SpeedConfig(speeds=tuple(1.0 if rank == SLOW else float(SLOWDOWN) for rank in range(workers)))
    return DIVISIONS[division]


@dataclass(frozen=True)
class Size:
    """How much is done."""

    epochs: int
    seeds: int
    timed: tuple[str, ...]
    """Divisions whose first run is made by processes, so that its times count."""
    slow_epochs: int
    equal_steps: int
    """Few: after many steps, rounding alone drives two runs apart."""


FULL = Size(epochs=5, seeds=3, timed=tuple(DIVISIONS), slow_epochs=2, equal_steps=20)
QUICK = Size(
    epochs=3, seeds=2, timed=("global", "random", "dirichlet-0.1", "speed"), slow_epochs=2, equal_steps=10
)
FULL_DATA = DigitsConfig(samples=1200, validation=1 / 3)
QUICK_DATA = DigitsConfig(samples=600, validation=1 / 3)


@dataclass(frozen=True)
class Plan:
    """The whole experiment."""

    workers: tuple[int, ...]
    size: Size
    first_seed: int = 0
    quick: bool = False
    data: DataConfig = field(default_factory=lambda: FULL_DATA)
    model: ModelConfig = field(default_factory=LenetConfig)
    timed_launcher: Literal["processes", "threads"] = "processes"
    """Threads share one interpreter: their times say little."""

    def __post_init__(self) -> None:
        for workers in self.workers:
            if not 2 <= workers <= MOST_WORKERS:
                raise ConfigError(
                    f"this lab divides data among 2 to {MOST_WORKERS} workers, and --workers says {workers}",
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
        """The seeds of repeated runs; whatever is not repeated has the first."""
        return tuple(range(self.first_seed, self.first_seed + self.size.seeds))

    def seeds_of(self, workers: int) -> tuple[int, ...]:
        """The seeds of runs with so many workers: all for the largest number, on which findings rest; else two."""
        return self.seeds if workers == self.most else self.seeds[:2]

    def runs(self, folder: str) -> dict[str, RunConfig]:
        """Every run by name, in the order in which they are made."""
        runs = {**self._single(), **self._equal()}
        for workers in self.workers:
            runs |= self._divided(workers)
        return {
            name: replace(config, output=replace(config.output, dir=folder, name=name))
            for name, config in runs.items()
        }

    def own(self, workers: int, seed: int) -> RunConfig:
        """The settings of a run by the lab's own loop."""
        return self._run(seed, workers)

    def _single(self) -> dict[str, RunConfig]:
        return {f"single-seed{seed}": self._alone(seed) for seed in self.seeds}

    def _alone(self, seed: int, threads: int = 1) -> RunConfig:
        return replace(self._run(seed), sync=NoSyncConfig(), threads=threads)

    def _divided(self, workers: int) -> dict[str, RunConfig]:
        runs = self._timed_runs(workers)
        for seed in self.seeds_of(workers):
            for division in DIVISIONS:
                if (name := run_name(division, workers, seed)) not in runs:
                    config = self._run(seed, workers)
                    runs[name] = replace(config, partition=partition_of(division, workers))
        return runs

    def _timed_runs(self, workers: int) -> dict[str, RunConfig]:
        """The runs whose times count, and one process between them."""
        plain = self._run(self.first_seed, workers)
        timed = {
            run_name(name, workers, self.first_seed): self._timed(
                replace(plain, partition=partition_of(name, workers)), slow=name == "speed"
            )
            for name in self.size.timed
        }
        timed[f"slow-random-{workers}w"] = self._timed(
            _shortened(replace(plain, partition=RandomConfig()), self.size.slow_epochs), slow=True
        )
        runs: dict[str, RunConfig] = {}
        for number, (name, config) in enumerate(timed.items()):
            if number % TIMED_AT_ONCE == 0:
                for cores, threads in (("one-core", 1), ("all-cores", self.cores)):
                    reference = _shortened(self._alone(self.first_seed, threads), epochs=1)
                    runs[f"reference-{cores}-{workers}w-{number // TIMED_AT_ONCE}"] = reference
            runs[name] = config
        return runs

    def _timed(self, config: RunConfig, slow: bool) -> RunConfig:
        """The same run by processes that have all cores together, and its times written down."""
        bottleneck = (f"rank={SLOW},slowdown={SLOWDOWN}",) if slow else ()
        return replace(
            config,
            threads=threads_per_worker(config.launch.workers),
            launch=replace(config.launch, launcher=self.timed_launcher, bottleneck=bottleneck),
            output=replace(config.output, trace=True),
        )

    def _equal(self) -> dict[str, RunConfig]:
        """The same first steps on one machine and divided anew in every step."""
        sgd = SgdConfig(lr=EQUAL_RATE)
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

    def _run(self, seed: int, workers: int = 1, optimizer: OptimizerConfig | None = None) -> RunConfig:
        return RunConfig(
            seed=seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=optimizer or AdamConfig(lr=RATE),
            sync=DdpConfig(),
            launch=LaunchConfig(workers=workers, launcher="threads"),
            train=TrainConfig(epochs=self.size.epochs, batch_size=BATCH_SIZE),
            checkpoint=CheckpointConfig(every=NEVER, keep=1),
            output=OutputConfig(),
        )


def _shortened(config: RunConfig, epochs: int) -> RunConfig:
    """A run whose times count and nothing else."""
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
            f"--workers of this lab is a list of whole numbers, not '{workers}'", "Try --workers 2,4."
        ) from None
    data = QUICK_DATA if quick else FULL_DATA
    return Plan(tuple(sorted(numbers)), QUICK if quick else FULL, first_seed, quick, data)
