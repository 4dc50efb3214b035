"""The workers as a grid with named axes, each a group: who shares data, who shares a layer.

::

    --mesh data=2,tensor=3            tensor 0   tensor 1   tensor 2
                             data 0   rank 0     rank 1     rank 2
                             data 1   rank 3     rank 4     rank 5

The last axis varies fastest, so the workers that exchange most are neighbours. A worker's group along an axis has the
workers that differ from it in that coordinate only: for rank 4 above, `tensor` is {3, 4, 5} and `data` is {1, 4}.
"""

import math
from collections.abc import Mapping

from shoal.comm.group import Group
from shoal.config.mesh import check_product


class Mesh:
    """One worker's place in the grid. Making it is a collective."""

    def __init__(self, world: Group, sizes: Mapping[str, int]) -> None:
        """`sizes` has the size of each axis, slowest first; their product is the number of workers."""
        check_product(sizes, world.size)
        self.world = world
        self.sizes = dict(sizes)
        self.coordinates = coordinates(world.rank, self.sizes)
        self._groups = {
            axis: world if size == world.size else world.split(ranks_along(axis, world.rank, self.sizes))
            for axis, size in self.sizes.items()
            if size > 1 or world.size == 1
        }

    def axis(self, name: str) -> Group | None:
        """The group of this worker along an axis; None for an axis of size 1 among several workers."""
        return self._groups.get(name)


def coordinates(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Where a rank is in the grid.

    >>> coordinates(4, {"data": 2, "tensor": 3})
    {'data': 1, 'tensor': 1}
    """
    place: dict[str, int] = {}
    for axis in reversed(list(sizes)):
        rank, place[axis] = divmod(rank, sizes[axis])
    return {axis: place[axis] for axis in sizes}


def ranks_along(axis: str, rank: int, sizes: Mapping[str, int]) -> list[int]:
    """The ranks that differ from this one in one coordinate only, itself among them.

    >>> ranks_along("data", 4, {"data": 2, "tensor": 3}), ranks_along("tensor", 4, {"data": 2, "tensor": 3})
    ([1, 4], [3, 4, 5])
    """
    names = list(sizes)
    stride = math.prod(sizes[name] for name in names[names.index(axis) + 1 :])
    first = rank - coordinates(rank, sizes)[axis] * stride
    return [first + step * stride for step in range(sizes[axis])]
