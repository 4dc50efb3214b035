"""A group that moves nothing, to measure the rest: the other workers' messages are copies of this one's."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from torch import Tensor

from shoal.comm.group import Finished, Group, Work
from shoal.comm.signature import Signature
from shoal.comm.wrapped_group import WrappedGroup
from shoal.errors import GroupError


class GroupCall(NamedTuple):
    """One collective of an exchange: what a worker puts into it."""

    operation: str
    num_bytes: int


class Echo(WrappedGroup):
    """As many workers as `group` has, all of which hold what this worker holds; `messages` lists the collectives.

    An exchange over it takes the time of its computation: encoding, and decoding the payloads of all workers.
    """

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.rank = group.size - 1  # rank 0 warns of what the exchange itself will warn of
        self.messages: list[GroupCall] = []

    def around(self, group: Group, ranks: Sequence[int]) -> Self:
        """The same around a smaller group."""
        del ranks
        return type(self)(group)

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Copy this worker's piece to every place; a sum stays this worker's summand."""
        if call.operation not in ("all_reduce", "all_gather"):
            raise GroupError(f"an echo knows no {call.operation}", "Use all_reduce or all_gather.")
        self.messages.append(GroupCall(call.operation, piece.nbytes))
        if whole is not None:
            whole.view(self.size, -1).copy_(piece.reshape(1, -1).expand(self.size, -1))
        return Finished()
