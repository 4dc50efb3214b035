"""From a config to everything a run is made of. All that can be wrong is found here, before anything is written."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from shoal import models, optim
from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.events.spans import SpanRecorder
from shoal.parallel.engine import build_engine
from shoal.parallel.replica import Replica
from shoal.parallel.single import Single
from shoal.parallel.strategy import Strategy
from shoal.train.clock import clock_of
from shoal.train.progress import total_steps
from shoal.train.schedule import factor


@dataclass(frozen=True)
class Built:
    """What a config describes, made."""

    config: RunConfig
    device: torch.device
    data: DataSet
    model: nn.Module
    strategy: Strategy
    span: SpanRecorder
    batch_size: int
    """Samples of one step, over all workers together."""
    total_steps: int
    """Steps of the whole run."""
    lr: Callable[[int], float]
    """The learning rate of each step."""


def build(config: RunConfig, device: torch.device) -> Built:
    """Data, model, optimizer and strategy of a run, on its device."""
    dataset = load(config.data).to(device)
    loss = models.build_loss(config.loss)
    model = build_model(config, dataset).to(device)
    span = SpanRecorder(clock_of(device))
    engine = build_engine(config.engine, model, config.loss, span)
    optimizer = optim.build(config.optimizer, engine.params.values())
    replica = Replica(model, loss, engine, optimizer, config.train.clip_norm, span)
    strategy = Single(replica)
    train, num_samples = config.train, len(dataset.train)
    batch_size = train.batch_size if isinstance(train.batch_size, int) else num_samples
    steps = total_steps(num_samples, batch_size, train.epochs, train.steps)
    base_lr: float = optimizer.param_groups[0]["lr"]
    multiplier = factor(config.schedule, steps)
    return Built(
        config,
        device,
        dataset,
        model,
        strategy,
        span,
        batch_size,
        steps,
        lr=lambda step: base_lr * multiplier(step),
    )


def build_model(config: RunConfig, dataset: DataSet) -> nn.Module:
    """The model with its initial weights, its output checked against the labels and the loss."""
    model = models.build(config.model, dataset.input_shape, dataset.outputs, config.seed)
    few = torch.arange(min(4, len(dataset.train)), device=dataset.train.labels.device)
    sample = dataset.batch(dataset.train, few)
    models.check_fit(model, config.loss, sample.inputs.cpu(), dataset.train.labels.cpu())
    return model


@contextmanager
def torch_settings(config: RunConfig) -> Generator[torch.device]:
    """The device of the run; torch's process-wide settings as the run needs them, and as they were afterwards."""
    device = _device(config)
    threads = torch.get_num_threads()
    try:
        if config.threads:
            torch.set_num_threads(config.threads)
        # A model of the user's own may draw from torch's global state (dropout): it starts from the seed.
        with (
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True),
        ):
            torch.manual_seed(config.seed)
            yield device
    finally:
        torch.set_num_threads(threads)


def _device(config: RunConfig) -> torch.device:
    available = torch.cuda.is_available()
    if config.device == "cuda" and not available:
        raise ConfigError(
            "--device cuda, but torch sees no GPU on this machine",
            "Use --device cpu, or run `shoal doctor` to see what is missing.",
        )
    wanted = "cuda" if config.device == "auto" and available else config.device
    return torch.device("cuda", torch.cuda.current_device()) if wanted == "cuda" else torch.device("cpu")
