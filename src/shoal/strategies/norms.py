"""The norm of all gradients, and clipping by it: the same bits however the parameters are divided into slices.

::

    fc1.weight   |····1024····|····1024····|···1024···|··300··|     one norm for each chunk of the flattened gradient
    all          |n₀|n₁|n₂|n₃|n₄|…                                  in the order of the parameters
    ‖g‖          √(n₀² + n₁² + …)

A sum's rounding depends on its order. Chunks begin at fixed elements of a parameter, and slices begin at chunks, so
every worker that has a chunk finds the same norm of it, and the sum over all chunks has one order.
"""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.errors import ConfigError

CHUNK = 1024
"""Elements of a chunk: few enough that slices are even, many enough that finding norms is one pass over memory."""


def chunk_norms(gradient: Tensor) -> Tensor:
    """The norm of each chunk of a flattened gradient; the last chunk may be shorter."""
    flat = gradient.detach().reshape(-1)
    whole = flat.numel() // CHUNK * CHUNK
    norms = torch.linalg.vector_norm(flat[:whole].view(-1, CHUNK), dim=1)
    if whole == flat.numel():
        return norms
    return torch.cat((norms, torch.linalg.vector_norm(flat[whole:]).view(1)))


def num_chunks(numel: int) -> int:
    """How many chunks a parameter has."""
    return -(-numel // CHUNK)


def in_order(norms: Mapping[str, Tensor]) -> Tensor:
    """The norms of all chunks, where one worker has all of them."""
    return torch.cat(list(norms.values())) if norms else torch.zeros(1)


def global_norm(norms: Tensor, sharded_over: Sequence[Group] = ()) -> Tensor:
    """The norm of everything. Where the parameters are divided among workers, squares are summed over those groups."""
    norm = torch.linalg.vector_norm(norms)
    if sharded_over:
        square = norm.square()
        for group in sharded_over:
            group.all_reduce(square).wait()
        norm = square.sqrt()
    return norm


def clip(gradients: Iterable[Tensor], norm: Tensor, largest: float) -> None:
    """Scale gradients, in place, as if their common norm were at most `largest`: g ← g · min(1, largest / ‖g‖₂)."""
    if not (isinstance(largest, Real) and largest > 0):
        raise ConfigError(f"clip_norm: expected a number > 0, got {largest!r}")
    # Multiplied even if the factor is 1: comparing it would make the host wait for the device.
    factor = torch.clamp(largest / norm, max=1.0)
    for grad in gradients:
        grad.mul_(factor)
