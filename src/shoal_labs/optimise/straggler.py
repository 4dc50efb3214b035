"""Slow workers, straggler × way of waiting: the runs by name, and the numbers that are read from their folders.

::

    straggler-even-bsp    no straggler: what bsp does when all workers are equally fast
    straggler-always-*    one worker is three times slower in every step, one run for each way
    straggler-passing-*   every worker is sometimes slow: a random delay in each step

Workers sleep while they are slow. The others sleep for a part of each step, too: so three workers have room on two
cores, as if each had a machine of its own.

An epoch is the unit: workers meet at its end, whatever the way. Its time is from the first span of any worker to the
last; evaluation comes after that, and does not count.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Literal

from shoal import data
from shoal.kit.findings import Measured, inside_run
from shoal.kit.runs import Record, RunFolder, StepRecord, read_events, settled, steps_of
from shoal.kit.settings import (
    Bottleneck,
    DataConfig,
    DdpConfig,
    DigitsConfig,
    LaunchConfig,
    LenetConfig,
    ModelConfig,
    RunConfig,
    ServerConfig,
    SgdConfig,
    SyncConfig,
    TrainConfig,
)
from shoal_labs.runs import ONLY_AT_THE_END, Runs

BATCH_SIZE = 63
"""Equal shares for three workers."""
FEWEST = 3
"""Workers: with one backup worker, the gradients of at least two still count."""
SPEED_OF_ALL, SLOWDOWN = 3, 3
"""A worker takes this many times its computation; the straggler this many times as long again."""
DELAY_MS = 30
"""In each step, a delay is drawn from 0 to this."""
STALENESS = 3
BACKUP = 1
LR, MOMENTUM = 0.02, 0.9
TARGET = 0.85
"""The accuracy on the validation set whose time is measured."""
EVEN = "even"
CONDITIONS = ("always", "passing")
WAYS = ("bsp", "ssp", "asp", "backup", "balanced")
BASE = (EVEN, "bsp")
"""The run without a straggler."""
LEARNING = (("always", "bsp"), ("always", "asp"))
"""The ways whose times to an accuracy are compared, in turns."""
VALIDATION = 0.2


@dataclass(frozen=True)
class StragglerSize:
    """How much is trained."""

    epochs: int
    repeats: int = 1
    """Runs of each of the two ways whose times to an accuracy are compared."""
    again_epochs: int = 0
    """Of the runs after the first, which only have to reach that accuracy; 0: as many."""


FULL, FULL_SAMPLES = StragglerSize(epochs=8, repeats=6), 5000
QUICK, QUICK_SAMPLES = StragglerSize(epochs=6, repeats=4, again_epochs=4), 1600


def sync_of(way: str) -> SyncConfig:
    """How a way waits."""
    ways: dict[str, SyncConfig] = {
        "bsp": ServerConfig(mode="bsp"),
        "ssp": ServerConfig(mode="ssp", staleness=STALENESS),
        "asp": ServerConfig(mode="asp"),
        "backup": ServerConfig(mode="bsp", backup=BACKUP),
        "balanced": DdpConfig(),
    }
    return ways[way]


@dataclass(frozen=True)
class StragglerPlan:
    """The experiment."""

    workers: int
    size: StragglerSize
    data: DataConfig
    """A part of it is held out."""
    seed: int = 0
    model: ModelConfig = field(default_factory=LenetConfig)
    timed_by: Literal["processes", "threads"] = "processes"

    @property
    def slow(self) -> int:
        """The rank of the straggler."""
        return self.workers - 1

    def named(self) -> dict[tuple[str, str], str]:
        """The runs by condition and way."""
        pairs = [BASE, *((condition, way) for condition in CONDITIONS for way in WAYS)]
        return {(condition, way): f"straggler-{condition}-{way}" for condition, way in pairs}

    def again(self, condition: str, way: str) -> list[str]:
        """The further runs of a way, in which it takes turns with its rival."""
        count = self.size.repeats if (condition, way) in LEARNING else 1
        return [f"{self.named()[condition, way]}-round{number}" for number in range(1, count)]

    def runs(self) -> dict[str, RunConfig]:
        """Every run by name, in the order in which they are trained."""
        runs = {name: self._run(*pair, epochs=self.size.epochs) for pair, name in self.named().items()}
        turns = zip(*([(name, pair) for name in self.again(*pair)] for pair in LEARNING), strict=True)
        again = self.size.again_epochs or self.size.epochs
        return runs | {name: self._run(*pair, epochs=again) for turn in turns for name, pair in turn}

    def bottlenecks(self, condition: str) -> tuple[Bottleneck, ...]:
        """What makes workers slow."""
        if condition == "passing":
            texts = [f"rank={rank},delay=0-{DELAY_MS}ms" for rank in range(self.workers)]
            return tuple(map(Bottleneck.from_text, texts))
        speeds = [SPEED_OF_ALL] * self.workers
        if condition == "always":
            speeds[self.slow] *= SLOWDOWN
        texts = [f"rank={rank},slowdown={speed}" for rank, speed in enumerate(speeds)]
        return tuple(map(Bottleneck.from_text, texts))

    def _run(self, condition: str, way: str, epochs: int) -> RunConfig:
        config = RunConfig(
            seed=self.seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=SgdConfig(lr=LR, momentum=MOMENTUM),
            sync=sync_of(way),
            launch=LaunchConfig(
                workers=self.workers, launcher=self.timed_by, bottleneck=self.bottlenecks(condition)
            ),
            train=TrainConfig(epochs=epochs, batch_size=BATCH_SIZE, balance=way == "balanced", test=False),
            checkpoint=ONLY_AT_THE_END,
        )
        return replace(config, output=replace(config.output, trace=True))


def plan_for(workers: int, quick: bool, first_seed: int) -> StragglerPlan:
    """The plan of a run."""
    samples = QUICK_SAMPLES if quick else FULL_SAMPLES
    data = DigitsConfig(samples=samples, validation=VALIDATION)
    return StragglerPlan(max(workers, FEWEST), QUICK if quick else FULL, data, first_seed)


@dataclass(frozen=True)
class Update:
    """One push that was applied."""

    rank: int
    step: int
    """The steps that its worker had finished before."""
    from_version: int
    """Updates in the weights of its gradient."""
    version: int
    staleness: int


def updates_in(records: Sequence[Record]) -> list[Update]:
    """The updates of a server, in order."""
    keys = [each.name for each in fields(Update)]
    return [Update(*(record[key] for key in keys)) for record in records if record["event"] == "update"]


def bound_broken(updates: Sequence[Update], bound: int) -> int:
    """Updates whose gradient misses another update that the bound of ssp guarantees.

    A gradient of step c must know of all updates of all workers' steps before c − bound (Ho et al. 2013).

    >>> early, late = Update(0, 0, 0, 1, 0), Update(1, 2, 0, 2, 1)
    >>> bound_broken([early, late], bound=2), bound_broken([early, late], bound=1)
    (0, 1)
    """
    last_version: dict[int, int] = {}
    for update in updates:
        last_version[update.step] = max(update.version, last_version.get(update.step, 0))
    newest = 0
    needed: list[int] = []  # by step: the newest version among the updates of all earlier steps
    for step in range(max(last_version, default=-1) + 1):
        needed.append(newest)
        newest = max(newest, last_version.get(step, 0))
    return sum(update.from_version < needed[max(0, update.step - bound)] for update in updates)


Shares = Callable[[int], Sequence[float]]
"""The samples of each worker in a step."""
CHANCE = 0.1
"""The accuracy before the first step, of ten classes."""


@dataclass(frozen=True)
class Watched:
    """One way under one condition."""

    rates: Sequence[float]
    """Samples per second that reach the weights, of the epochs after the first."""
    ideals: Sequence[float]
    """Σ 1/tᵢ: what the workers compute per second while they compute, added up."""
    seconds: Sequence[float]
    """Training time at the end of each epoch."""
    accuracies: Sequence[float]
    """On the validation set, at the end of each epoch."""
    updates: Sequence[Update]
    """Of the server; none where there is no server."""
    dropped: int
    """Pushes that came too late to count."""
    again: Sequence["Watched"] = ()
    """Further runs."""

    @property
    def rate(self) -> Measured:
        """Over the epochs after the first."""
        return inside_run(self.rates)

    @property
    def ideal(self) -> Measured:
        """Over the epochs after the first."""
        return inside_run(self.ideals)

    def staleness_of(self, ranks: Sequence[int], epoch_steps: int) -> list[float]:
        """The mean staleness of some workers' updates, epoch by epoch; epochs without any are left out."""
        epochs: dict[int, list[int]] = {}
        for update in self.updates:
            if update.rank in ranks:
                epochs.setdefault(update.step // epoch_steps, []).append(update.staleness)
        return [fmean(epochs[epoch]) for epoch in sorted(epochs)]

    @cached_property
    def staleness(self) -> Mapping[int, int]:
        """The number of updates by staleness."""
        return dict(sorted(Counter(update.staleness for update in self.updates).items())) or {0: 1}

    @property
    def mean_staleness(self) -> float:
        """Over all updates; 0 without a server."""
        return sum(key * count for key, count in self.staleness.items()) / sum(self.staleness.values())

    def time_to(self, accuracy: float) -> Measured | None:
        """Training time until an accuracy, on a line between two epochs' ends; None: it was not reached.

        The spread is half of that epoch: between its ends the accuracy is not known.
        """
        before_s, before = 0.0, CHANCE
        for seconds, reached in zip(self.seconds, self.accuracies, strict=True):
            if reached >= accuracy:
                part = max(0.0, accuracy - before) / max(reached - before, 1e-9)
                return Measured(
                    before_s + part * (seconds - before_s),
                    (seconds - before_s) / 2,
                    "grid",
                    len(self.seconds),
                )
            before_s, before = seconds, reached
        return None


@dataclass(frozen=True)
class StragglerMeasurements:
    """Everything measured."""

    plan: StragglerPlan
    samples: int
    """Of an epoch."""
    validation_samples: int
    ways: Mapping[tuple[str, str], Watched]
    """By condition and way."""
    bound_broken: Mapping[str, int]
    """By condition: updates of ssp that break its bound."""

    @property
    def epoch_steps(self) -> int:
        """Steps of a worker in an epoch."""
        return -(-self.samples // BATCH_SIZE)


def measure(plan: StragglerPlan, runs: Runs) -> StragglerMeasurements:
    """Read every run folder."""
    dataset = data.load(plan.data)
    samples = len(dataset.train)
    named = plan.named()

    def watched(name: str, way: str) -> Watched:
        return _watched(runs.path(name), plan, samples, way)

    ways = {
        (condition, way): replace(
            watched(name, way), again=[watched(more, way) for more in plan.again(condition, way)]
        )
        for (condition, way), name in named.items()
    }
    ssp = {condition: watched for (condition, way), watched in ways.items() if way == "ssp"}
    return StragglerMeasurements(
        plan,
        samples,
        len(dataset.validation or ()),
        ways,
        {condition: bound_broken(watched.updates, STALENESS) for condition, watched in ssp.items()},
    )


def _watched(run: Path, plan: StragglerPlan, samples: int, way: str) -> Watched:
    folder = RunFolder(run)
    records = [settled(read_events(folder.events(rank))) for rank in range(plan.workers)]
    has_server = isinstance(sync_of(way), ServerConfig)
    served = settled(read_events(folder.events(plan.workers))) if has_server else []
    updates = updates_in(served)
    steps = -(-samples // BATCH_SIZE)
    applied = Counter(update.step // steps for update in updates)
    accuracies = [record["accuracy"] for record in records[0] if record["event"] == "validation"]
    epochs = range(len(accuracies))
    ranks = [_by_epoch(each, len(epochs)) for each in records]
    seconds = [_seconds([rank[epoch] for rank in ranks]) for epoch in epochs]
    counted = epochs[1:]
    rates = [
        samples * (applied[epoch] / (steps * plan.workers) if has_server else 1.0) / seconds[epoch]
        for epoch in counted
    ]
    shares = _shares(records[0], plan.workers, samples / steps)
    ideals = [
        sum(_own_rate(rank[epoch], number, shares) for number, rank in enumerate(ranks)) for epoch in counted
    ]
    return Watched(
        rates,
        ideals,
        [*accumulate(seconds)],
        accuracies,
        updates,
        sum(record["event"] == "dropped" for record in served),
    )


def _by_epoch(records: Sequence[Record], epochs: int) -> list[list[StepRecord]]:
    """The steps of one worker in each epoch; a step that a worker skipped has no gradients, and is left out."""
    found: list[list[StepRecord]] = [[] for _ in range(epochs)]
    numbers = [record["epoch"] for record in records if record["event"] == "step"]
    for epoch, step in zip(numbers, steps_of(records), strict=True):
        if any(span.name == "backward" for span in step.spans or ()):
            found[epoch].append(step)
    return found


def _seconds(ranks: Sequence[Sequence[StepRecord]]) -> float:
    """From the first span of any worker to the last."""
    spans = [span for steps in ranks for step in steps for span in step.spans or ()]
    return (max(span.end_ns for span in spans) - min(span.start_ns for span in spans)) / 1e9


def _own_rate(steps: Sequence[StepRecord], rank: int, shares: Shares) -> float:
    """Samples per second of one worker while it neither waits nor sends."""
    own_ns = sum(step.totals_ns.get("data", 0) + step.totals_ns.get("compute", 0) for step in steps)
    return sum(shares(step.step)[rank] for step in steps) / (own_ns / 1e9) if own_ns else 0.0


def _shares(records: Sequence[Record], workers: int, batch: float) -> Shares:
    """Equal shares, until they are balanced."""
    changes: list[tuple[int, Sequence[float]]] = [(0, [batch / workers] * workers)]
    changes += [(record["step"], record["shares"]) for record in records if record["event"] == "shares"]
    return lambda step: next(shares for first, shares in reversed(changes) if first <= step)
