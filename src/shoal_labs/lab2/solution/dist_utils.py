"""How nodes work together: they meet, start from the same weights, and average their gradients."""

import torch
import torch.distributed as dist
from torch import nn

from shoal_labs.handout.common import dist_init as dist_init
from shoal_labs.handout.common import init_parameters as init_parameters


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
    """Replace every parameter by the mean over the nodes, for `--aggregate parameters`."""
    for param in model.parameters():
        dist.all_reduce(param.data, op=dist.ReduceOp.SUM)
        param.data /= dist.get_world_size()
