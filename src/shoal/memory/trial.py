"""Tries variants of a run in real workers: the peak of their memory, and the time of a step.

New workers train a few steps of each variant, with the run's batch size on generated data. So the numbers are those of
the run itself, the data set left out.
"""

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from shoal.comm.agree import share_text
from shoal.comm.group import Group
from shoal.comm.traced import traced
from shoal.config.checks.resources import check_resources, input_shape
from shoal.config.checks.supported import check_world
from shoal.config.mesh import check_divided
from shoal.config.plain import from_plain, to_plain
from shoal.config.schema import Custom, GlobalConfig, RunConfig, StopConfig, SyntheticConfig
from shoal.errors import ConfigError
from shoal.launch import programs
from shoal.launch.one_worker import joined_group
from shoal.parallel.strategy import Share
from shoal.training.build import Built, build, torch_settings
from shoal.training.memory.peak import PeakMemory, warm_up

WARM_UP, TIMED = 1, 5
"""Steps before the measured ones, and measured ones. In the first, optimizer state is allocated and libraries start."""
LONGEST_S = 2.0
"""No further step is timed after this."""


class Trial(NamedTuple):
    """One variant, as measured."""

    peak: int
    """Bytes of the fullest worker."""
    seconds: float
    """Of the fastest step that was timed: a busy machine makes others slower, and none faster."""


def check_can_try(config: RunConfig) -> None:
    """Refuse a run whose steps cannot be tried."""
    if config.launch.launcher == "threads" and config.launch.workers > 1:
        raise ConfigError(
            "thread workers share one process, whose memory cannot be divided among them",
            "Use --launcher processes.",
        )
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


def try_each(configs: Sequence[RunConfig], most: int = TIMED) -> list[Trial]:
    """Measure variants of one run, each in new workers; `most` of their steps are measured.

    In workers that have tried another variant, tensors would be allocated in gaps of the heap that it left, and the
    peak would be higher than that of a run.
    """
    for config in configs:
        check_can_try(config)
    return [_in_workers(config, most) for config in configs]


def _in_workers(config: RunConfig, most: int) -> Trial:
    workers = config.launch.workers
    with tempfile.TemporaryDirectory() as folder:
        given = {"config": to_plain(generated(config)), "folder": folder, "most": most}
        programs.by_processes(__file__, [json.dumps(given)], workers)
        by_worker = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(workers)]
    # The fullest worker's peak, the slowest one's time.
    peaks, seconds = zip(*by_worker, strict=True)
    return Trial(max(peaks), max(seconds))


def generated(config: RunConfig) -> RunConfig:
    """The same run on generated data, enough for one step."""
    data, samples = config.data, config.train.batch_size
    assert isinstance(samples, int)
    samples = max(64, samples)
    if isinstance(data, SyntheticConfig):
        small = replace(data, samples=samples, validation=0.0)
    elif isinstance(data, Custom):  # nothing is known about it, so it is loaded
        small = data
    else:
        small = SyntheticConfig(samples=samples, shape=input_shape(data))
    train, memory = replace(config.train, metrics=()), replace(config.memory, budget=None)
    return replace(
        config, data=small, train=train, stop=StopConfig(), partition=GlobalConfig(), memory=memory
    )


# In a worker.


def work(config: RunConfig, folder: Path, most: int) -> None:
    """Measure as one worker."""
    warnings.simplefilter("ignore")  # of gradients on generated data, which mean nothing here
    with joined_group(config) as group, torch_settings(config) as device:
        warm_up(device)
        (folder / f"{group.rank}.json").write_text(json.dumps(_tried(config, device, group, most)))
        group.barrier().wait()


def _tried(config: RunConfig, device: torch.device, group: Group, most: int) -> Trial:
    """Train a few steps."""
    group.barrier().wait()
    peak = PeakMemory(device)
    built = build(config, device, traced(group))
    times: list[float] = []
    for number in range(WARM_UP + most):
        if number == WARM_UP:
            peak.restart()  # what libraries need once, when they start, is gone
        seconds = _step(built, group, device)
        times += [seconds] * (number >= WARM_UP)
        # Rank 0 decides for all workers.
        if share_text(group, "enough" if sum(times) > LONGEST_S else ""):
            break
    found = Trial(peak.read() - built.data.nbytes, min(times))
    group.barrier().wait()
    built.strategy.close()
    return found


def _step(built: Built, group: Group, device: torch.device) -> float:
    """One step of the run's batch size; all workers begin together."""
    strategy, count = built.strategy, built.batch_size
    first, last = (count * (strategy.data_rank + more) // strategy.data_size for more in (0, 1))
    mine = torch.arange(first, last) % len(built.data.train)
    parts = (
        built.data.training_batch(part, built.config.seed, 0)
        for part in (mine.split(built.config.train.micro_batch) if len(mine) else ())
    )
    group.barrier().wait()
    started = time.perf_counter()
    strategy.step(Share(parts, count, len(mine)), built.lr(0))
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    work(from_plain(given["config"]), Path(given["folder"]), given["most"])
