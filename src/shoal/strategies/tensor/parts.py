"""Parts of tensors, and the collectives that pass between workers where a value is divided.

A value is *whole* (every worker has all of it, with the same bits), *divided* (every worker has its own features), or
*partial* (the sum over the workers is the whole). Three collectives, each with its gradient, turn one into another.

::

                   forward                               backward                      sends per worker
    spread_to      whole   → whole     identity          partial → whole   all-reduce  0, then the value
    sum_over       partial → whole     all-reduce        whole   → whole   identity    the value, then 0
    gather_from    divided → whole     all-gather        whole   → divided slice       its part, then 0

Not for second derivatives: the backward passes have no gradients of their own.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.strategies.pieces.piece import Place


@dataclass(frozen=True)
class Cut:
    """A tensor divided along one dimension into equal parts, one for each worker of a group.

    `blocks` is for a matrix of several matrices, one below the other: every worker has its part of each. See `Place`.
    """

    dim: int
    blocks: int = 1

    def place(self, shape: tuple[int, ...], group: Group, replica: int = 0) -> Place:
        """The place of this worker's part in a whole of this shape."""
        start = [0] * len(shape)
        start[self.dim] = group.rank * (shape[self.dim] // self.blocks // group.size)
        return Place(shape, tuple(start), replica, self.blocks)

    def part(self, whole: Tensor, group: Group) -> Tensor:
        """A copy of this worker's part."""
        shape = list(whole.shape)
        shape[self.dim] //= group.size
        return self.place(tuple(whole.shape), group).read(whole.detach(), tuple(shape)).clone()


def part_of(parameter: Tensor | None, cut: Cut, group: Group) -> nn.Parameter | None:
    """This worker's part of a parameter, as a parameter."""
    if parameter is None:
        return None
    return nn.Parameter(cut.part(parameter, group), parameter.requires_grad)


def check_divides(name: str, count: int, what: str, group: Group) -> None:
    """Refuse to divide `count` things unevenly."""
    if count % group.size:
        fitting = [str(size) for size in range(1, group.size + 1) if count % size == 0]
        raise ConfigError(
            f"cannot divide {name} among {group.size} workers: it has {count} {what}, not a multiple of {group.size}",
            f"Use {' or '.join(fitting)} workers (--mesh tensor=N), another number of {what}, or a plan without {name} "
            "(--tensor.plan).",
        )


def spread_to(value: Tensor, group: Group) -> Tensor:
    """Use a whole value in a layer that every worker has a part of: their gradients of it add up."""
    return _SpreadTo.apply(value, group)  # pyright: ignore[reportReturnType]


def sum_over(value: Tensor, group: Group) -> Tensor:
    """Sum the workers' partial values, in place."""
    return _SumOver.apply(value, group)  # pyright: ignore[reportReturnType]


def gather_from(part: Tensor, group: Group, dim: int = -1) -> Tensor:
    """Put the workers' parts one after the other along a dimension."""
    return _GatherFrom.apply(part, group, dim)  # pyright: ignore[reportReturnType]


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
        part = part.contiguous()
        rows = part.new_empty((group.size, *part.shape))
        group.all_gather(rows, part).wait()
        return torch.cat(rows.unbind(), dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        return my_part(gradient, ctx.group, ctx.dim).contiguous(), None, None


def my_part(value: Tensor, group: Group, dim: int) -> Tensor:
    """The view of this worker's part of a whole value; the size is a multiple of the number of workers."""
    size = value.shape[dim] // group.size
    return value.narrow(dim, group.rank * size, size)
