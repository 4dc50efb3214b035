"""Division of a batch by leaves: consecutive micro-batches of the global batch, the same for any number of workers.

::

    batch of 44, micro-batches of 8      leaf 0   leaf 1   leaf 2   leaf 3   leaf 4   leaf 5   –    –
                                              8        8        8        8        8        4
    1 worker                             |··························· rank 0 ·························|
    2 workers                            |············· rank 0 ·············|········· rank 1 ········|
    4 workers                            |···· rank 0 ····|···· rank 1 ·····|···· rank 2 ····|· rank 3 |

The leaves are the leaves of a balanced binary tree. Their number is padded to a power of two, so that every worker, of
1, 2, 4, … workers, has one whole subtree. Work is even only if the number of leaves is a power of two itself.
"""

from functools import lru_cache
from itertools import pairwise
from typing import final

from torch import Tensor

from shoal.data.division.order import epoch_order, worker_indices


@final
class ByLeaves:
    """Each step takes the next samples of one order, as `Global` does, and gives each worker whole leaves.

    >>> ByLeaves(1000, seed=0, size=2, micro_batch=8).counts(0, 64)
    (32, 32)
    >>> ByLeaves(1000, seed=0, size=4, micro_batch=8).counts(0, 44), ByLeaves(10, 0, 4, 8).counts(0, 64)
    ((16, 16, 12, 0), (8, 2, 0, 0))
    """

    def __init__(self, num_samples: int, seed: int, size: int, micro_batch: int) -> None:
        self.num_samples = num_samples
        self.size = size
        self.micro_batch = micro_batch
        self._order = lru_cache(maxsize=1)(lambda epoch: epoch_order(num_samples, seed, epoch))

    def order(self, epoch: int) -> Tensor:
        """The samples of the epoch in the order of the steps; computed once per epoch."""
        return self._order(epoch)

    def first_leaf(self, consumed: int, count: int, rank: int) -> int:
        """The number of a worker's first leaf in the batch."""
        leaves = -(-min(count, self.num_samples - consumed) // self.micro_batch)
        slots = 1 << max(leaves - 1, self.size - 1, 0).bit_length()
        return rank * slots // self.size

    def counts(self, consumed: int, count: int) -> tuple[int, ...]:
        """Samples of each worker in a step; workers whose leaves are all absent have none."""
        samples = min(count, self.num_samples - consumed)
        starts = [
            min(samples, self.first_leaf(consumed, count, rank) * self.micro_batch)
            for rank in range(self.size + 1)
        ]
        return tuple(stop - start for start, stop in pairwise(starts))

    def step(self, epoch: int, consumed: int, count: int, rank: int) -> Tensor:
        """The samples of the worker's leaves, one leaf after the other."""
        return worker_indices(self._order(epoch), consumed, self.counts(consumed, count), rank)
