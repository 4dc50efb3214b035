"""What a step of each optimizer costs: the three take turns, so that a slow second affects all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shoal import data, models, optim
from shoal.kit.division import DataSet, epoch_order
from shoal.kit.settings import RunConfig, from_plain, to_plain
from shoal.kit.training import torch_settings
from shoal_labs.lab1.plan import BATCH_SIZE, Name
from shoal_labs.student.host import Host
from shoal_labs.timing.contest import Contest, contest

GD_SAMPLES = 2048
"""A timed step of GD takes at most this many samples: as many as go through the network at once."""
ROUNDS = 15


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one step, round by round. Two rivals at a time, so that neither always follows the same third."""

    small: Contest
    """SGD and Adam, on a batch."""
    large: Contest
    """GD and SGD."""


def step_times(configs: Mapping[Name, RunConfig], host: Host, contest_s: float) -> StepTimes:
    """Time the steps of every optimizer."""
    plain = {name: to_plain(config) for name, config in configs.items()}
    small, large = (
        host.call(take_turns, plain, names, contest_s) for names in (("sgd", "adam"), ("gd", "sgd"))
    )
    return StepTimes(_contest(small), _contest(large))


def take_turns(
    plain: Mapping[Name, dict[str, Any]], names: Sequence[Name], contest_s: float
) -> dict[str, list[float]]:
    """Seconds of a step of each rival, round by round; settings are plain data."""
    configs: dict[Name, RunConfig] = {name: from_plain(plain[name]) for name in names}
    with torch_settings(configs["sgd"]) as device:
        dataset = data.load(configs["sgd"].data).to(device)
        steps = {name: _step(config, dataset, samples_of(name, dataset)) for name, config in configs.items()}
        found = contest({str(name): step for name, step in steps.items()}, ROUNDS, contest_s).seconds
        return {name: list(seconds) for name, seconds in found.items()}


def _contest(seconds: Mapping[str, Sequence[float]]) -> Contest:
    return Contest({name: tuple(each) for name, each in seconds.items()})


def samples_of(name: Name, dataset: DataSet) -> int:
    """The samples of a timed step."""
    return min(len(dataset.train), GD_SAMPLES if name == "gd" else BATCH_SIZE)


def _step(config: RunConfig, dataset: DataSet, num_samples: int) -> Callable[[], object]:
    """Forward, backward and update, on the first samples of the run's order."""
    first = epoch_order(len(dataset.train), config.seed, 0)[:num_samples]
    batch = dataset.batch(dataset.train, first)
    device = batch.inputs.device
    model = models.build(config.model, dataset.input_shape, dataset.outputs, config.seed).to(device)
    loss, optimizer = models.build_loss(config.loss), optim.build(config.optimizer, model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        (loss(model(batch.inputs), batch.labels) / num_samples).backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return step
