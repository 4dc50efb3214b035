"""`shoal.average_gradients(model)`: after backward, every worker gets the mean of all workers' gradients."""

from collections.abc import Callable
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.comm.join import join
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Number
from shoal.errors import ConfigError
from shoal.models.common import check_has_values

_compared: WeakSet[nn.Module] = WeakSet()
"""The models whose weights were the same on all workers when they first came here."""


@checks_arguments
def average_gradients(
    model: nn.Module, group: Group | None = None, *, num_samples: Number | None = None
) -> None:
    """Replace every gradient by the mean over the workers; all of them call this between backward and step.

    Phase 1: the workers learn how many samples each has, and which parameters have a gradient somewhere.
    Phase 2: one all-reduce for all gradients of a dtype.

    `num_samples` are the samples of this worker's batch, whose *mean* loss was differentiated. With it the mean is
    weighted, Σ nᵢ gᵢ / Σ nᵢ, and equals the gradient of one machine also for uneven batches, and for a worker
    without samples, which skips backward. Without it every worker counts the same, as in torch's wrapper.

    A parameter without a gradient here counts as zeros, and stays without one if no worker has one. On the first call
    the weights are compared: workers that start from different weights stay different, however they average.

    `group` is by default the process group of torch if the program has one, else `shoal.join()`.

    Not overlapped with backward: `shoal.DistributedDataParallel` is.

    >>> model = nn.Linear(2, 1)
    >>> model(torch.ones(4, 2)).mean().backward()
    >>> average_gradients(model, num_samples=4)             # a group of one: nothing changes
    >>> model.weight.grad
    tensor([[1., 1.]])
    """
    rank, size, all_reduce = _world(group)
    params = [param for param in model.parameters() if param.requires_grad]
    weight = 1.0 if num_samples is None else float(num_samples)
    check_has_values(model)
    if any(param.grad is not None and param.grad.is_sparse for param in params):
        raise ConfigError(
            "average_gradients cannot average sparse gradients", "Use shoal.DistributedDataParallel."
        )

    # Phase 1. The weight, whether each parameter has a gradient, and each worker's sum of its weights.
    new = model not in _compared
    facts = torch.zeros(1 + len(params) + size, dtype=torch.float64)
    facts[0] = weight
    facts[1 : 1 + len(params)] = torch.tensor([param.grad is not None for param in params])
    facts[1 + len(params) + rank] = _weight_sum(params) if new else 0.0
    facts = facts.to(params[0].device) if params else facts
    all_reduce(facts)
    total, *rest = facts.tolist()
    if new:
        _compare(rest[len(params) :])
        _compared.add(model)
    if total == 0:
        raise ConfigError("no worker has samples: num_samples is 0 on all of them")

    # Phase 2.
    used = [param for param, count in zip(params, rest, strict=False) if count]
    for dtype in dict.fromkeys(param.dtype for param in used):
        alike = [param for param in used if param.dtype == dtype]
        grads = [torch.zeros_like(param) if param.grad is None else param.grad for param in alike]
        row = torch.cat([grad.reshape(-1) for grad in grads])
        row.mul_(weight / total)
        all_reduce(row)
        parts = row.split([param.numel() for param in alike])
        for param, part in zip(alike, parts, strict=True):
            if param.grad is None:
                param.grad = part.view_as(param).clone()
            else:
                param.grad.copy_(part.view_as(param))


def _world(group: Group | None) -> tuple[int, int, Callable[[Tensor], object]]:
    """Rank, number of workers, and a sum over all of them."""
    if group is None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size(), dist.all_reduce
    chosen = group or join()
    return chosen.rank, chosen.size, lambda tensor: chosen.all_reduce(tensor).wait()


def _weight_sum(params: list[nn.Parameter]) -> float:
    """The same number on workers with the same weights."""
    with torch.no_grad():
        return float(sum(param.double().square().sum() * (i + 1) for i, param in enumerate(params)))


def _compare(sums: list[float]) -> None:
    # As text, where nan equals nan: weights that are not finite are another error.
    other = next((rank for rank, each in enumerate(sums) if each.hex() != sums[0].hex()), None)
    if other is not None:
        raise ConfigError(
            f"worker {other} starts from other weights than worker 0: with averaged gradients they stay different",
            "Make the model after torch.manual_seed(0) on every worker, or broadcast worker 0's weights first.",
        )
