"""The four collectives of tensor parallelism, each with its gradient.

A value is *whole* (every worker has all of it, with the same bits), *divided* (every worker has its own features), or
*partial* (the sum over the workers is the whole). The collectives come in pairs: the backward pass of one is the
forward pass of the other.

::

                   forward                               backward                      sends per worker
    spread_to      whole   → whole     identity          partial → whole   all-reduce  0, then the value
    sum_over       partial → whole     all-reduce        whole   → whole   identity    the value, then 0
    gather_from    divided → whole     all-gather        whole   → divided slice       its part, then 0
    slice_for      whole   → divided   slice             divided → whole   all-gather  0, then its part

Not for second derivatives: the backward passes have no gradients of their own.
"""

from typing import Any

import torch
from torch import Tensor

from shoal.comm.group import Group


def spread_to(value: Tensor, group: Group) -> Tensor:
    """Use a whole value in a layer that every worker has a part of: their gradients of it add up."""
    return _SpreadTo.apply(value, group)  # pyright: ignore[reportReturnType]


def sum_over(value: Tensor, group: Group) -> Tensor:
    """Sum the workers' partial values, in place."""
    return _SumOver.apply(value, group)  # pyright: ignore[reportReturnType]


def gather_from(part: Tensor, group: Group, dim: int = -1) -> Tensor:
    """Put the workers' parts one after the other along a dimension."""
    return _GatherFrom.apply(part, group, dim)  # pyright: ignore[reportReturnType]


def slice_for(value: Tensor, group: Group, dim: int = -1) -> Tensor:
    """This worker's part of a whole value along a dimension."""
    return _SliceFor.apply(value, group, dim)  # pyright: ignore[reportReturnType]


class _SpreadTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        # A clone, because another node may hold the same gradient.
        total = gradient.clone(memory_format=torch.contiguous_format)
        ctx.group.all_reduce(total).wait()
        return total, None


class _SumOver(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: Group) -> Tensor:
        ctx.mark_dirty(value)
        group.all_reduce(value).wait()
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return gradient, None


class _GatherFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Group, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return all_parts(part, group, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        return my_part(gradient, ctx.group, ctx.dim).contiguous(), None, None


class _SliceFor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: Group, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return my_part(value, group, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        return all_parts(gradient, ctx.group, ctx.dim), None, None


def all_parts(part: Tensor, group: Group, dim: int) -> Tensor:
    """All workers' parts, one after the other along a dimension."""
    part = part.contiguous()
    rows = part.new_empty((group.size, *part.shape))
    group.all_gather(rows, part).wait()
    return torch.cat(rows.unbind(), dim)


def my_part(value: Tensor, group: Group, dim: int) -> Tensor:
    """The view of this worker's part of a whole value; the size is a multiple of the number of workers."""
    size = value.shape[dim] // group.size
    return value.narrow(dim, group.rank * size, size)
