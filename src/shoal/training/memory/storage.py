"""How a run stores parameters and optimizer state, as `--memory` says."""

import torch
from torch import nn

from shoal.config.schema import RunConfig
from shoal.optim.compact.optimizer import SMALL, Storage


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
