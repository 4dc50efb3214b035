"""The sum: by the group's own all-reduce, or by one of our algorithms."""

from dataclasses import dataclass

from torch import Tensor

from shoal.comm.algorithms import Algorithm
from shoal.comm.group import Group, Work
from shoal.parallel.exchange.exchange import Done


@dataclass(frozen=True)
class AllReduce:
    """The group's own all-reduce, which may go on while the caller computes."""

    bears: int = 0

    def __call__(self, group: Group, bucket: Tensor) -> Work:
        """Start it."""
        return group.all_reduce(bucket)


@dataclass(frozen=True)
class By:
    """An algorithm on send and recv alone; over when the call returns."""

    algorithm: Algorithm
    bears: int = 0

    def __call__(self, group: Group, bucket: Tensor) -> Work:
        """Carry it out."""
        self.algorithm(group, bucket)
        return Done()
