"""`--balance`: divides batches by the workers' measured speed, so that no worker waits for the slowest.

Every few steps the workers exchange their times per sample, and all compute the same shares from them. This changes
which worker computes a sample, never which samples a step has. (The order of the sums changes with the shares, so
balanced runs are repeatable up to rounding, not to the bit.)
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
from shoal.training.hooks.hook import Hook

EVERY = 10
"""Steps between two updates of the shares: enough for a median, few enough to follow changes of the machine."""
OF_A_SHARE = {"data", "compute"}
AFTER_THE_EXCHANGE = {"update", "clip"}
"""Computation that does not depend on the share."""


def balanced(weights: Sequence[float], seconds_per_sample: Sequence[float]) -> tuple[float, ...]:
    """New weights: half-way from the old ones to weights in proportion to speed.

    Half-way, so that noise in one measurement has little effect. A worker without a measurement (nan) keeps its weight.

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
    """Divide a batch in proportion to weights, at least one sample each: a worker without samples cannot be measured.

    >>> shares_at_least_one(64, (0.75, 0.25)), shares_at_least_one(10, (0.99, 0.01)), shares_at_least_one(1, (0.9, 0.1))
    ((48, 16), (9, 1), (1, 0))
    """
    size, total = len(weights), math.fsum(weights)
    if batch_size <= size:
        return shares_by_weight(batch_size, weights)
    beyond_one = [max(0.0, batch_size * weight / total - 1) for weight in weights]
    return tuple(1 + more for more in shares_by_weight(batch_size - size, beyond_one))


class Balance(Hook):
    """Measures this worker's speed, and updates the division's shares together with the other workers.

    Not safe if other code changes the division's shares, too.
    """

    def __init__(
        self,
        division: Global,
        group: Group,
        span: SpanRecorder,
        batch_size: int,
        record: Callable[[dict[str, Any]], None],
    ) -> None:
        self._division, self._group, self._span = division, group, span
        self._batch_size, self._record = batch_size, record
        self._weights: tuple[float, ...] = division.shares
        self._shares = division.counts(0, batch_size)
        self._seconds_per_sample: list[float] = []

    def after_step(self, step: int, num_samples: int) -> None:
        """Measure the step; after every few, agree on new shares."""
        self.measured(own_seconds(self._span), num_samples)
        if (step + 1) % EVERY == 0:
            self._agree(step + 1)

    def measured(self, seconds: float, num_samples: int) -> None:
        """Record the time of this worker's samples; 0 s means that the step was not measured."""
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


def own_seconds(span: SpanRecorder) -> float:
    """The time that this worker spent on its samples in the current step, from its spans."""
    when = span.clock.nanoseconds
    return math.fsum(
        (when(end) - when(start)) / 1e9
        for name, kind, start, end in span.marks
        if kind in OF_A_SHARE and name not in AFTER_THE_EXCHANGE
    )
