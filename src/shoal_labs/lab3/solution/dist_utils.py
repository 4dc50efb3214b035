"""What nodes need to work together: meeting, starting from the same weights, adding up gradients."""

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
    for param in model.parameters():
        dist.broadcast(param.data, src=0)


def sum_over_nodes(number: float) -> float:
    """The sum of a number over all nodes."""
    total = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()


def sum_gradients(model: nn.Module) -> None:
    """Replace every gradient by the sum over the nodes."""
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
