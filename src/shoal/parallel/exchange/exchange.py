"""What an exchange is: one verb, and how many bad workers it bears."""

from typing import Protocol

from torch import Tensor

from shoal.comm.group import Group, Work


class Exchange(Protocol):
    """`exchange(group, bucket)`: when the work it gives is done, `bucket` holds the aggregate on every worker.

    The aggregate stands for the *sum* over the workers (each loss is divided by the global number of samples), and
    has the same bits on all of them. Until the work is done the bucket belongs to the exchange.
    """

    @property
    def bears(self) -> int:
        """Bad workers it bears: as many may send anything at all, numbers that are not finite too."""
        ...

    def __call__(self, group: Group, bucket: Tensor) -> Work:
        """Start the exchange of one bucket."""
        ...
