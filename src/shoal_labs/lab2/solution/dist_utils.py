"""What nodes need to work together: meeting, starting from the same weights, and averaging their gradients."""

import os

import torch
import torch.distributed as dist
from torch import nn


def dist_init(world_size: int, rank: int, master_addr: str = "localhost", master_port: str = "12355") -> None:
    """Meet the other nodes at the address of rank 0; returns when all of them are there."""
    os.environ["MASTER_ADDR"] = master_addr
    os.environ["MASTER_PORT"] = str(master_port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def init_parameters(model: nn.Module) -> None:
    """Give every node rank 0's parameters: from different starts, the same gradients lead to different ends."""
    if dist.get_world_size() > 1:
        for param in model.parameters():
            dist.broadcast(param.data, src=0)


def allreduce_average_gradients(model: nn.Module) -> None:
    """Replace every gradient by the mean over the nodes, with all_reduce."""
    # task: allreduce_average_gradients
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
            param.grad /= dist.get_world_size()
    # end: allreduce_average_gradients


def allgather_average_gradients(model: nn.Module) -> None:
    """Replace every gradient by the mean over the nodes, with all_gather."""
    # task: allgather_average_gradients
    for param in model.parameters():
        if param.grad is not None:
            # One tensor for each node: [tensor] * n would be one tensor, written n times.
            gathered = [torch.empty_like(param.grad) for _ in range(dist.get_world_size())]
            dist.all_gather(gathered, param.grad)
            param.grad.copy_(torch.stack(gathered).mean(dim=0))
    # end: allgather_average_gradients


def reduce_average_gradients(model: nn.Module) -> None:
    """Replace every gradient by the mean over the nodes, with reduce and broadcast."""
    # task: reduce_average_gradients
    for param in model.parameters():
        if param.grad is not None:
            dist.reduce(param.grad, dst=0, op=dist.ReduceOp.SUM)
            if dist.get_rank() == 0:
                param.grad /= dist.get_world_size()
            dist.broadcast(param.grad, src=0)
    # end: reduce_average_gradients


@torch.no_grad()
def average_parameters(model: nn.Module) -> None:
    """Replace every parameter by the mean over the nodes: for `--aggregate parameters`, after the step."""
    for param in model.parameters():
        dist.all_reduce(param.data, op=dist.ReduceOp.SUM)
        param.data /= dist.get_world_size()
