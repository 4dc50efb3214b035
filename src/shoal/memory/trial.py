"""Tries variants of a run in real workers: the peak of their memory, and the time of a step.

New workers train a few steps of each variant, with the run's batch size on generated data. So the numbers are those of
the run itself, the data set left out.

A step of a small model takes a millisecond. If a thread of it has to wait for a processor, it takes many times as long,
and other programs may keep the machine busy for seconds. So only steps without such a delay are compared.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from shoal.comm.agree import largest_of
from shoal.comm.group import Group
from shoal.comm.traced import traced
from shoal.config.checks import check_resources, check_world
from shoal.config.mesh import check_divided
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError, WorkerError
from shoal.events.clocks import BUSY, RunDelay
from shoal.memory.process import refuse_threads
from shoal.memory.sizes import on_generated_data
from shoal.memory.workers import as_worker, in_workers
from shoal.strategies.strategy import Share
from shoal.training.build import build
from shoal.training.memory.peak import PeakMemory, warm_up
from shoal.training.run import Run

WARM_UP, TIMED = 1, 5
"""Steps before the measured ones, and measured ones. In the first, optimizer state is allocated and libraries start."""
SHORTEST_S, LONGEST_S = 0.2, 2.0
"""Steps are timed for at least this long, and longer if they are delayed. No further step is timed after the second."""
MOST_TIMED = 1000
"""Nor after so many: what is done between steps takes longer than the shortest ones."""


class Trial(NamedTuple):
    """One variant, as measured."""

    peak: int
    """Bytes of the fullest worker."""
    seconds: float
    """Of the fastest step without a delay or, if there is none, of the fastest: delays make no step faster."""
    was_delayed: bool = False
    """Whether every step that was timed was delayed: then the time means nothing."""


class TimedStep(NamedTuple):
    """One step of all workers."""

    seconds: float
    """Of the slowest worker."""
    is_delayed: bool
    """Whether a thread of any worker was."""


def check_can_try(config: RunConfig) -> None:
    """Refuse a run whose steps cannot be tried."""
    refuse_threads(config)
    if not isinstance(config.train.batch_size, int):
        raise ConfigError(
            "a batch of the whole training set cannot be tried: its size is not known before the data is loaded",
            "Use --batch-size, and --optimizer sgd instead of gd.",
        )
    if config.num_servers:
        raise ConfigError(
            f"strategy {config.strategy} has servers beside its workers, whose memory is not measured",
            "Use another strategy.",
        )
    check_resources(config, config.launch.workers)
    check_world(config, config.launch.workers)
    check_divided(config.mesh, config.launch.workers)


def try_each(configs: Sequence[RunConfig], most: int = TIMED, longest_s: float = LONGEST_S) -> list[Trial]:
    """Measure variants of one run, each in new workers: the peak in `most` steps, and the time of a step.

    No further step is measured after `longest_s`: with 0, one. A variant that a worker refuses is a ConfigError here.

    In workers that have tried another variant, tensors would be allocated in gaps of the heap that it left, and the
    peak would be higher than in a run.
    """
    for config in configs:
        check_can_try(config)
    return [_try(config, most, longest_s) for config in configs]


def _try(config: RunConfig, most: int, longest_s: float) -> Trial:
    try:
        by_worker = in_workers(__file__, generated(config), most=most, longest_s=longest_s)
    except WorkerError as error:
        if not error.refusal:
            raise
        raise ConfigError(error.refusal, error.hint) from error
    # The fullest worker's peak; all workers agree on the rest.
    peaks, seconds, were_delayed = zip(*by_worker, strict=True)
    return Trial(max(peaks), max(seconds), any(were_delayed))


def generated(config: RunConfig) -> RunConfig:
    """The same run on generated data, enough for one step."""
    samples = config.train.batch_size
    assert isinstance(samples, int)
    return on_generated_data(replace(config, memory=replace(config.memory, budget=None)), max(64, samples))


# In a worker.


def _tried(config: RunConfig, device: torch.device, group: Group, most: int, longest_s: float) -> Trial:
    """Train a few steps.

    Phase 1: `most` steps, for the peak and the time. More would raise the peak, because gaps of the heap grow.
    Phase 2: further steps for the time alone.
    """
    warm_up(device)
    group.barrier().wait()
    peak = PeakMemory(device)
    run = build(config, device, traced(group))
    for _ in range(WARM_UP):
        _step(run, group, device)
    peak.restart()  # what libraries need once, when they start, is gone
    steps: list[TimedStep] = []
    while len(steps) < most and _total_s(steps) <= longest_s:
        steps.append(_step(run, group, device))
    peak_bytes = peak.read() - run.data.nbytes
    while not is_enough(steps, most, longest_s):
        steps.append(_step(run, group, device))
    group.barrier().wait()
    run.strategy.close()
    return Trial(peak_bytes, *fastest(steps))


def is_enough(steps: Sequence[TimedStep], most: int, longest_s: float = LONGEST_S) -> bool:
    """Whether no further step has to be timed."""
    total_s, undelayed = _total_s(steps), sum(not step.is_delayed for step in steps)
    is_over = total_s > longest_s or len(steps) >= MOST_TIMED
    return is_over or (undelayed >= most and total_s >= SHORTEST_S)


def fastest(steps: Sequence[TimedStep]) -> TimedStep:
    """The fastest step without a delay; if all were delayed, the fastest of these."""
    return min(steps, key=lambda step: (step.is_delayed, step.seconds))


def _total_s(steps: Sequence[TimedStep]) -> float:
    return sum(step.seconds for step in steps)


def _step(run: Run, group: Group, device: torch.device) -> TimedStep:
    """One step of the run's batch size; all workers begin together, and have the same answer."""
    strategy, count = run.strategy, run.batch_size
    first, last = (count * (strategy.data_rank + more) // strategy.data_size for more in (0, 1))
    mine = torch.arange(first, last) % len(run.data.train)
    parts = (
        run.data.training_batch(part, run.config.seed, 0)
        for part in (mine.split(run.config.train.micro_batch) if len(mine) else ())
    )
    group.barrier().wait()
    delay, started_ns = RunDelay(), time.perf_counter_ns()
    strategy.step(Share(parts, count, len(mine), empty=run.empty_batch), run.lr(0))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    took_ns, waited = time.perf_counter_ns() - started_ns, delay.fraction() or 0.0
    # More workers than cores delay each other in every step, with and without a technique.
    is_delayed = waited > BUSY and group.size <= (os.cpu_count() or 1)
    return TimedStep(largest_of(group, took_ns) / 1e9, bool(largest_of(group, int(is_delayed))))


if __name__ == "__main__":
    as_worker(_tried)
