"""How workers work together: they meet, and reach parameters that other workers hold."""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import rpc


def dist_init(world_size: int, rank: int, master_addr: str = "localhost", master_port: str = "12355") -> None:
    """Meet the other workers at the address of rank 0; then each can call functions on the others by name."""
    os.environ["MASTER_ADDR"] = master_addr
    os.environ["MASTER_PORT"] = str(master_port)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)


def draw_parameters(stage: rpc.RRef[nn.Module], seed: int) -> None:
    """Draw all parameters of a stage from the seed; runs on the worker that holds the stage."""
    module: nn.Module = stage.local_value()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in module.parameters():
            bound = 1 / param[0].numel() ** 0.5
            param.copy_(2 * bound * torch.rand(param.shape, generator=generator) - bound)


def own_parameter_rrefs(stage: rpc.RRef[nn.Module]) -> list[rpc.RRef[nn.Parameter]]:
    """References to all parameters of a stage; runs on the worker that holds the stage."""
    return [rpc.RRef(param) for param in stage.local_value().parameters()]


def run_stage(stage: rpc.RRef[nn.Module], given: Tensor) -> Tensor:
    """The output of a stage; runs on the worker that holds the stage."""
    return stage.local_value().forward(given)


def init_parameters(model: Any, seed: int) -> None:
    """Give stage i the parameters drawn from seed + i, whichever worker holds it."""
    # task: init_parameters
    # model.parameters() is empty: the parameters are on the workers, so the drawing has to happen there.
    for number, stage in enumerate(model.stages):
        rpc.rpc_sync(stage.owner(), draw_parameters, args=(stage, seed + number))
    # end: init_parameters


def parameter_rrefs(model: Any) -> list[rpc.RRef[nn.Parameter]]:
    """References to all parameters of all stages, for DistributedOptimizer."""
    # task: parameter_rrefs
    return [
        reference
        for stage in model.stages
        for reference in rpc.rpc_sync(stage.owner(), own_parameter_rrefs, args=(stage,))
    ]
    # end: parameter_rrefs
