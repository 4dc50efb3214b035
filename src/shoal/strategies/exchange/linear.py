"""The sum: by the group's own all-reduce, or by one of our algorithms."""

from dataclasses import dataclass

from shoal.comm.algorithms import Algorithm
from shoal.comm.group import Group, Work
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.exchange import Done, Exchange


@dataclass(frozen=True)
class AllReduce(Exchange):
    """The group's own all-reduce, which may proceed while the caller computes."""

    @property
    def is_sum(self) -> bool:
        """Yes."""
        return True

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Start it."""
        return group.all_reduce(bucket.flat)


@dataclass(frozen=True)
class By(Exchange):
    """An algorithm on send and recv alone; over when the call returns."""

    algorithm: Algorithm

    @property
    def is_sum(self) -> bool:
        """Yes."""
        return True

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Run it."""
        self.algorithm(group, bucket.flat)
        return Done()
