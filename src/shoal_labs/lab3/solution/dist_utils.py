"""How nodes work together: they meet, start from the same weights, and add up their gradients."""

import torch
import torch.distributed as dist
from torch import nn

from shoal_labs.handout.common import dist_init as dist_init
from shoal_labs.handout.common import init_parameters as init_parameters


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
