"""`--balance`: batches are divided by the workers' measured speed, so that nobody waits for the slowest.

Every few steps the workers tell each other how long they took for a sample; all then derive the same shares from the
same numbers. Who computes a sample changes, and never which samples a step has. (Sums in another order differ in their
last digits, so balanced runs repeat each other up to rounding, and not to the bit.)
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shoal.comm.group import Group
from shoal.data.division import Global
from shoal.data.division.order import shares_by_weight
from shoal.events.spans import SpanRecorder
from shoal.train.build import Built
from shoal.train.progress import Progress

EVERY = 10
"""Steps between two balances: long enough for a median, short enough to follow a machine that changes."""
OF_A_SHARE = {"data", "compute"}
AFTER_THE_EXCHANGE = {"update", "clip"}
"""Computation that takes every worker the same time, whatever its share."""


def balanced(weights: Sequence[float], seconds_per_sample: Sequence[float]) -> tuple[float, ...]:
    """New parts of a batch: half of the way from the old ones to parts in proportion to speed.

    Half of the way, so that a moment of noise does not move everything. A worker that could not be measured (nan) keeps
    its part for now.

    >>> weights = (0.5, 0.5)
    >>> for _ in range(10):
    ...     weights = balanced(weights, (0.001, 0.003))
    >>> [round(weight, 3) for weight in weights]
    [0.75, 0.25]
    """
    speeds = {rank: 1 / seconds for rank, seconds in enumerate(seconds_per_sample) if seconds > 0}
    to_share, total = math.fsum(weights[rank] for rank in speeds), math.fsum(speeds.values())
    return tuple(
        (weight + to_share * speeds[rank] / total) / 2 if rank in speeds else weight
        for rank, weight in enumerate(weights)
    )


def shares_at_least_one(batch_size: int, weights: Sequence[float]) -> tuple[int, ...]:
    """A batch divided in proportion to weights, with a sample for everyone: who has none is never measured again.

    >>> shares_at_least_one(64, (0.75, 0.25)), shares_at_least_one(10, (0.99, 0.01)), shares_at_least_one(1, (0.9, 0.1))
    ((48, 16), (9, 1), (1, 0))
    """
    size, total = len(weights), math.fsum(weights)
    if batch_size <= size:
        return shares_by_weight(batch_size, weights)
    beyond_one = [max(0.0, batch_size * weight / total - 1) for weight in weights]
    return tuple(1 + more for more in shares_by_weight(batch_size - size, beyond_one))


class Balance:
    """Measures this worker, and changes the division's shares together with the others.

    Not safe with a division that others change too.
    """

    def __init__(
        self,
        division: Global,
        group: Group,
        span: SpanRecorder,
        batch_size: int,
        record: Callable[[dict[str, Any]], None],
        every: int = EVERY,
    ) -> None:
        self._division, self._group, self._span = division, group, span
        self._batch_size, self._record, self._every = batch_size, record, every
        self._weights: tuple[float, ...] = division.shares
        self._shares = division.counts(0, batch_size)
        self._seconds_per_sample: list[float] = []

    def stepped(self, step: int, num_samples: int) -> None:
        """After a step in which this worker had so many samples, before its spans are taken away."""
        self.measured(own_seconds(self._span), num_samples)
        if (step + 1) % self._every == 0:
            self._agree(step + 1)

    def measured(self, seconds: float, num_samples: int) -> None:
        """Note how long this worker's samples took it; no time at all is a step that was not measured."""
        if seconds > 0 and num_samples > 0:
            self._seconds_per_sample.append(seconds / num_samples)

    def _agree(self, next_step: int) -> None:
        mine = statistics.median(self._seconds_per_sample) if self._seconds_per_sample else math.nan
        self._seconds_per_sample.clear()
        everyone = torch.empty(self._group.size, dtype=torch.float64)
        with self._span("balance", "move"):
            self._group.all_gather(everyone, torch.tensor([mine], dtype=torch.float64)).wait()
        self._weights = balanced(self._weights, everyone.tolist())
        shares = shares_at_least_one(self._batch_size, self._weights)
        if shares != self._shares:
            self._shares = self._division.shares = shares
            self._record({"event": "shares", "step": next_step, "shares": list(shares)})


def balance_of(built: Built, progress: Progress, record: Callable[[dict[str, Any]], None]) -> Balance | None:
    """The balance of a run, where it was asked for; its first shares are those that the run begins with."""
    division = built.division(progress)
    if not built.config.train.balance or not isinstance(division, Global):
        return None
    return Balance(division, built.strategy.copies, built.span, built.batch_size, record)


def own_seconds(span: SpanRecorder) -> float:
    """How long the spans of the step in progress say that this worker was busy with its samples."""
    when = span.clock.nanoseconds
    return math.fsum(
        (when(end) - when(start)) / 1e9
        for name, kind, start, end in span.marks
        if kind in OF_A_SHARE and name not in AFTER_THE_EXCHANGE
    )
