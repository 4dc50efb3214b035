"""Parts of parameters: which dimension the workers of a group divide, and this worker's part of it."""

from dataclasses import dataclass

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

    def whole_shape(self, part: tuple[int, ...], group: Group) -> tuple[int, ...]:
        """The shape of the whole that a part is of."""
        shape = list(part)
        shape[self.dim] *= group.size
        return tuple(shape)


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
