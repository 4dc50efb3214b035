"""Simulated slow and faulty workers: each condition wraps the engine's gradients, so it works with every strategy.

Gradients are delayed or corrupted before they are exchanged, so the other workers wait for them and receive them as
they would from a real slow or faulty worker.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from shoal.config.conditions import Bottleneck, Fault, GradientFault
from shoal.data.dataset import Batch
from shoal.data.seeds import generator_for
from shoal.events.spans import SpanRecorder
from shoal.strategies.exchange.exchange import TrainingClock
from shoal.strategies.gradient_engine import OnFinal
from shoal.strategies.strategy import Gradients

FACTORS: dict[GradientFault, float] = {"nan": math.nan, "huge": 1e6, "flip": -1.0}
"""The factor of each fault that multiplies gradients."""
REMEMBERED = 9
"""Number of past computations whose times predict the next one."""


def corrupted(gradients: Gradients, fault: Fault, training: TrainingClock) -> Gradients:
    """Gradients times the fault's factor, from its first bad step on; the loss does not change.

    The factor is part of the seed of backward: every engine supports that, and gradients that are sent during backward
    are bad, too.
    """
    factor = FACTORS[fault.gradient]

    def bad_gradients(batch: Batch, scale: float) -> Tensor:
        return gradients(batch, scale * factor if training.step >= fault.step else scale)

    return bad_gradients


def infinite(
    gradients: Gradients, params: Iterable[Tensor], on_final: OnFinal, fault: Fault, training: TrainingClock
) -> Gradients:
    """Gradients that are all infinite, from the fault's first bad step on; the loss does not change.

    They are set when they are final, before they are sent. A factor in the seed of backward would give NaN: infinity
    minus infinity, or times zero.
    """

    def fill(param: Tensor) -> None:
        if training.step >= fault.step and param.grad is not None:
            param.grad.fill_(math.inf)

    for param in params:
        on_final(param, fill)
    return gradients


def outdated(
    gradients: Gradients, params: Sequence[Tensor], fault: Fault, training: TrainingClock
) -> Gradients:
    """Gradients at the weights of the fault's first step: later updates have no effect on this worker's gradients.

    The parameters hold the old weights only during the computation. Costs memory for two copies of the weights, and
    three copy operations per step.
    """
    old: list[Tensor] = []

    def stale_gradients(batch: Batch, scale: float) -> Tensor:
        if training.step < fault.step:
            return gradients(batch, scale)
        current = [param.detach().clone() for param in params]
        old.extend(current if not old else ())
        _put(params, old)
        try:
            return gradients(batch, scale)
        finally:
            _put(params, current)

    return stale_gradients


def _put(params: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for param, value in zip(params, values, strict=True):
            param.copy_(value)


def slowed(
    gradients: Gradients,
    bottleneck: Bottleneck,
    training: TrainingClock,
    seed: int,
    span: SpanRecorder,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Gradients:
    """Gradients that take `slowdown` times as long, plus one delay per step.

    Times are wall-clock times, because the other workers wait for these. The worker sleeps for the extra time, so it
    takes no processor from the others. It sleeps *before* the computation, because gradients may be sent during
    backward. The extra time is predicted from the median time per sample of the last few computations, so that one
    outlier has no effect. The first computation is not remembered, because it warms up (on a GPU it takes a hundred
    times as long): so the first two have no prediction, and sleep afterwards.

    Delays are drawn from (seed, rank, step), so that a run can be repeated. A worker without samples in a step
    computes nothing that could be slow.
    """
    delay_of = delays(bottleneck, seed)
    seconds_per_sample: deque[float] = deque(maxlen=REMEMBERED)
    delayed_step, is_warm = -1, False

    def rest(seconds: float) -> None:
        if seconds > 0:
            with span("slowed", "compute"):
                sleep(seconds)

    def slow_gradients(batch: Batch, scale: float) -> Tensor:
        nonlocal delayed_step, is_warm
        slower = bottleneck.slowdown - 1
        if training.step != delayed_step:
            delayed_step = training.step
            rest(delay_of(training.step))
        if seconds_per_sample:
            rest(slower * statistics.median_low(seconds_per_sample) * batch.num_samples)
        start = clock()
        loss_sum = gradients(batch, scale)
        if loss_sum.is_cuda:
            torch.cuda.synchronize(loss_sum.device)
        took = clock() - start
        if not seconds_per_sample:
            rest(slower * took)
        if is_warm:
            seconds_per_sample.append(took / max(1, batch.num_samples))
        is_warm = True
        return loss_sum

    return slow_gradients


def delays(bottleneck: Bottleneck, seed: int) -> Callable[[int], float]:
    """The delay of each step: drawn uniformly from the range, a pure function of (seed, rank, step).

    >>> delay_of = delays(Bottleneck(rank=1, delay_s=(0.01, 0.03)), seed=0)
    >>> all(0.01 <= delay_of(step) <= 0.03 for step in range(100)), delay_of(5) == delay_of(5)
    (True, True)
    """
    shortest, longest = bottleneck.delay_s

    def delay_of(step: int) -> float:
        if shortest == longest:
            return shortest
        drawn = torch.rand((), generator=generator_for("delay", seed, bottleneck.rank, step)).item()
        return shortest + (longest - shortest) * drawn

    return delay_of


def under_conditions(
    gradients: Gradients,
    params: Iterable[Tensor],
    on_final: OnFinal,
    bottlenecks: Sequence[Bottleneck],
    faults: Sequence[Fault],
    rank: int,
    training: TrainingClock,
    seed: int,
    span: SpanRecorder,
) -> Gradients:
    """The gradients of one worker under its bottlenecks and faults.

    Callbacks that send gradients must be registered with `on_final` after this.
    """
    params = [*params]
    for fault in faults:
        if fault.rank != rank:
            continue
        if fault.gradient == "stale":
            gradients = outdated(gradients, params, fault, training)
        elif fault.gradient == "inf":
            gradients = infinite(gradients, params, on_final, fault, training)
        else:
            gradients = corrupted(gradients, fault, training)
    for bottleneck in bottlenecks:
        if bottleneck.rank == rank and (bottleneck.slowdown > 1 or bottleneck.delay_s[1] > 0):
            gradients = slowed(gradients, bottleneck, training, seed, span)
    return gradients
