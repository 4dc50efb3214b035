"""The protocol of exchanges: one verb, what it guarantees, and the state it may keep."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.strategies.buckets.bucket import Bucket


@runtime_checkable
class Exchange(Protocol):
    """`exchange(group, bucket)`: when its work is done, the bucket holds the aggregate on every worker.

    `bucket.flat` is flat and contiguous, of any length, 0 included. The aggregate stands for the *sum* over the workers
    (each loss is divided by the global number of samples), and has the same bits on all of them. Until the work is
    done the bucket belongs to the exchange, afterwards to the caller. Several exchanges may be in progress at once;
    workers start them in the same order. `contract.py` checks all of this, for our own exchanges and for a user's.

    An exchange may keep state for each bucket, under `bucket.key`, or for each parameter (`parameter_state.py`): error
    feedback, low-rank factors. `pieces` and `load` put it into checkpoints. It belongs to this worker alone.
    """

    @property
    def tolerates(self) -> int:
        """How many bad workers it tolerates: they may send anything, also numbers that are not finite."""
        return 0

    @property
    def is_sum(self) -> bool:
        """Whether every element becomes the sum of all workers', as precise as its dtype. It may then piggyback."""
        return False

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Start the exchange of one bucket."""
        ...

    def pieces(self) -> dict[str, Tensor]:
        """The state to save, by name; none unless the exchange keeps any."""
        return {}

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Restore what `pieces` returned."""
        del pieces


class Done:
    """The work of an exchange that was over when its call returned."""

    def wait(self) -> None:
        """Return at once."""

    def done(self) -> bool:
        """Yes."""
        return True


def pieces_under(prefix: str, pieces: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The pieces whose names begin with a prefix, without it: the state of a part of an exchange."""
    return {name.removeprefix(prefix): pieces[name] for name in pieces if name.startswith(prefix)}
