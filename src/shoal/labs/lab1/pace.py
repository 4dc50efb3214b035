"""What a step of each optimizer costs: the three take turns, so that a slow second affects all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from shoal import data, models, optim
from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.data.division.order import epoch_order
from shoal.labs.lab1.plan import BATCH_SIZE, NAMES, Name, Plan
from shoal.labs.timing.contest import Contest, contest
from shoal.training.build import torch_settings

GD_SAMPLES = 2048
"""A timed step of GD takes at most this many samples: as many as go through the network at once."""
ROUNDS, BUDGET_S = 15, 20.0


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one step, round by round. Two rivals at a time, so that neither always follows the same third."""

    small: Contest
    """SGD and Adam, on a batch."""
    large: Contest
    """GD and SGD."""


def step_times(plan: Plan, rates: Mapping[Name, float]) -> StepTimes:
    """Time the steps of every optimizer."""
    configs: dict[Name, RunConfig] = {
        name: plan.config(name, rates[name], plan.first_seed, plan.passes(name), test=False) for name in NAMES
    }
    with torch_settings(configs["sgd"]) as device:
        dataset = data.load(plan.data).to(device)
        steps = {name: _step(config, dataset, samples_of(name, dataset)) for name, config in configs.items()}

        def rivals(*names: Name) -> Contest:
            return contest({name: steps[name] for name in names}, ROUNDS, BUDGET_S)

        return StepTimes(small=rivals("sgd", "adam"), large=rivals("gd", "sgd"))


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
