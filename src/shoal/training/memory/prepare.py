"""Changes a model and its forward pass so that a step keeps fewer activations in memory."""

from itertools import chain

import torch
from torch import nn

from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.training.memory.checkpointing import checkpoint_blocks
from shoal.training.memory.offloading import OffloadedActivations


def prepare_activations(
    config: RunConfig, model: nn.Module, device: torch.device
) -> OffloadedActivations | None:
    """Checkpoint blocks of the model, in place; returns where activations wait for backward, if not in memory."""
    memory = config.memory
    if memory.checkpoint:
        refuse_dropout_in_threads(config, model, f"--memory.checkpoint {memory.checkpoint}")
        checkpoint_blocks(model, memory.checkpoint)
    if memory.offload == "none":
        return None
    return OffloadedActivations(
        memory.offload, device, chain(model.parameters(), model.buffers()), memory.offload_dir
    )


def refuse_dropout_in_threads(config: RunConfig, model: nn.Module, flag: str) -> None:
    """Refuse to repeat a forward pass that draws random numbers, where workers share one random state."""
    draws = any(_is_rate(getattr(each, name, 0)) for each in model.modules() for name in ("dropout", "p"))
    if draws and config.launch.launcher == "threads" and config.launch.workers > 1:
        raise ConfigError(
            f"{flag} does not support dropout with thread workers: they share one random state, so that a repeated "
            "forward pass would draw other masks",
            "Use --launcher processes.",
        )


def _is_rate(value: object) -> bool:
    """Whether it is a rate of dropout above 0. A user's module may call a tensor or another module so."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
