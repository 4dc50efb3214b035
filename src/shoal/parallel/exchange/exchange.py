"""What an exchange is: one verb, and how many bad workers it bears."""

from typing import Protocol

from torch import Tensor

from shoal.comm.group import Group, Work


class Exchange(Protocol):
    """`exchange(group, bucket)`: when the work it gives is done, `bucket` holds the aggregate on every worker.

    A bucket is flat and contiguous, of any length, also of none. The aggregate stands for the *sum* over the workers
    (each loss is divided by the global number of samples), and has the same bits on all of them. Until the work is
    done the bucket belongs to the exchange, afterwards to the caller. Several may be under way at once; workers start
    them in the same order. `contract.py` checks all of this, for our own exchanges and for a user's.
    """

    @property
    def bears(self) -> int:
        """Bad workers it bears: as many may send anything at all, numbers that are not finite too."""
        ...

    def __call__(self, group: Group, bucket: Tensor) -> Work:
        """Start the exchange of one bucket."""
        ...


class Done:
    """The work of an exchange that was over when its call returned."""

    def wait(self) -> None:
        """Return at once."""

    def done(self) -> bool:
        """Yes."""
        return True
