"""Changes a model and its forward pass so that a run stores less, as `--memory` says."""

from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import nn

from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.optim.compact.optimizer import SMALL, Storage

if TYPE_CHECKING:
    from shoal.training.memory.offloading import OffloadedActivations


def storage_of(config: RunConfig) -> Storage | None:
    """The storage of parameters and state between steps; None: as they are, in float32."""
    memory = config.memory
    if memory.state_bits == 32 and memory.parameters == "float32":
        return None
    return Storage(8 if memory.state_bits == 8 else 32, config.seed)


def store_parameters(config: RunConfig, model: nn.Module) -> None:
    """Store large parameters in bfloat16, with `--memory.parameters bf16`; norms and biases stay in float32."""
    if config.memory.parameters == "bf16":
        for param in model.parameters():
            if param.numel() >= SMALL and param.dtype == torch.float32:
                param.data = param.data.to(torch.bfloat16)


def prepare_activations(
    config: RunConfig, model: nn.Module, device: torch.device
) -> "OffloadedActivations | None":
    """Checkpoint blocks of the model, in place; returns where activations wait for backward, if not in memory."""
    memory = config.memory
    if memory.checkpoint:
        from shoal.training.memory.checkpointing import checkpoint_blocks

        refuse_dropout_in_threads(config, model, f"--memory.checkpoint {memory.checkpoint}")
        checkpoint_blocks(model, memory.checkpoint)
    if memory.offload == "none":
        return None
    from shoal.training.memory.offloading import OffloadedActivations

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
