"""The numbers of the part, read from run folders alone.

An epoch is the unit: workers meet at its end, whatever the way. Its time is from the first span of any worker to the
last; evaluation comes after that, and does not count.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from shoal import data
from shoal.events.file import Record, read_events
from shoal.events.folder import RunFolder
from shoal.events.steps import StepRecord, settled, steps_of
from shoal.report.findings import Measured, inside_run
from shoal.strategies.server.settings import ServerConfig
from shoal_labs.optimise.straggler.plan import BATCH_SIZE, STALENESS, StragglerPlan, sync_of
from shoal_labs.optimise.straggler.updates import Update, bound_broken, updates_in
from shoal_labs.runs import Runs

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
    epochs = range(plan.size.epochs)
    ranks = [_by_epoch(each, plan.size.epochs) for each in records]
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
        [record["accuracy"] for record in records[0] if record["event"] == "validation"],
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
