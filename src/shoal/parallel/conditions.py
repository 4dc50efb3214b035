"""Workers that are slow or wrong on purpose: each wraps the engine's gradients, so it works under every strategy.

What a worker computes is delayed, or spoilt, before its peers can get at it: they wait for it, and receive it, as they
would if it were real.
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
from shoal.parallel.strategy import Gradients
from shoal.parallel.training_clock import TrainingClock

FACTORS: dict[GradientFault, float] = {"nan": math.nan, "inf": math.inf, "huge": 1e6, "flip": -1.0}
"""What a fault multiplies gradients by."""
REMEMBERED = 9
"""Computations whose times are kept, to know how long the next one will take."""


def corrupted(gradients: Gradients, fault: Fault, training: TrainingClock) -> Gradients:
    """Gradients times the fault's factor, from its first bad step on; the loss stays what it is.

    The factor enters as the seed of backward: every engine takes it, and gradients that are sent while backward is
    still at work are bad already.
    """
    factor = FACTORS[fault.gradient]

    def bad_gradients(batch: Batch, scale: float) -> Tensor:
        return gradients(batch, scale * factor if training.step >= fault.step else scale)

    return bad_gradients


def outdated(
    gradients: Gradients, params: Sequence[Tensor], fault: Fault, training: TrainingClock
) -> Gradients:
    """Gradients at the weights of the fault's first step, for ever: as if no update reached this worker any more.

    The old weights lie in the parameters only while it computes. Costs a copy of the weights, and three more a step.
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
    """Gradients that take `slowdown` times as long, and in each step once longer by a delay.

    The time of a computation is taken by the wall clock: that is what its peers wait for, however many threads it has.
    The rest is slept through and not computed through, for a slow machine takes no processor from the others. It is
    slept *before* the computation: gradients that are sent while backward is still at work would otherwise leave in
    time. How long is known from the time per sample of the last few, by their median, so that one moment without a
    processor is not multiplied too. Only the first has no last one, and sleeps afterwards.

    Delays are drawn from (seed, rank, step), so that a run can be repeated. A worker without samples in a step
    computes nothing that could be slow.
    """
    delay_of = delays(bottleneck, seed)
    seconds_per_sample: deque[float] = deque(maxlen=REMEMBERED)
    delayed_step = -1

    def rest(seconds: float) -> None:
        if seconds > 0:
            with span("slowed", "compute"):
                sleep(seconds)

    def slow_gradients(batch: Batch, scale: float) -> Tensor:
        nonlocal delayed_step
        slower = bottleneck.slowdown - 1
        if training.step != delayed_step:
            delayed_step = training.step
            rest(delay_of(training.step))
        if seconds_per_sample:
            rest(slower * statistics.median(seconds_per_sample) * batch.num_samples)
        start = clock()
        loss_sum = gradients(batch, scale)
        if loss_sum.is_cuda:
            torch.cuda.synchronize(loss_sum.device)
        took = clock() - start
        if not seconds_per_sample:
            rest(slower * took)
        seconds_per_sample.append(took / max(1, batch.num_samples))
        return loss_sum

    return slow_gradients


def delays(bottleneck: Bottleneck, seed: int) -> Callable[[int], float]:
    """The delay of each step: drawn evenly from the range, a pure function of (seed, rank, step).

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
    bottlenecks: Sequence[Bottleneck],
    faults: Sequence[Fault],
    rank: int,
    training: TrainingClock,
    seed: int,
    span: SpanRecorder,
) -> Gradients:
    """The gradients of one worker, as slow and as bad as the conditions say."""
    for fault in faults:
        if fault.rank == rank:
            is_stale = fault.gradient == "stale"
            gradients = (
                outdated(gradients, [*params], fault, training)
                if is_stale
                else corrupted(gradients, fault, training)
            )
    for bottleneck in bottlenecks:
        if bottleneck.rank == rank and (bottleneck.slowdown > 1 or bottleneck.delay_s[1] > 0):
            gradients = slowed(gradients, bottleneck, training, seed, span)
    return gradients
