"""The base of groups that wrap another one and change some of its calls."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from shoal.comm.group import CPU, Group, Receipt, Work
from shoal.comm.signature import Signature


class WrappedGroup(Group):
    """A group that passes every call on to `group`; a subclass changes some of them."""

    def __init__(self, group: Group) -> None:
        self.rank, self.size, self.kind = group.rank, group.size, group.kind
        self.overlaps, self.devices, self.address = group.overlaps, group.devices, group.address
        self.shares_memory, self.maps_memory = group.shares_memory, group.maps_memory
        self.sums_along_tree = group.sums_along_tree
        self._group = group

    def issue(self, call: Signature, piece: Tensor, whole: Tensor | None = None) -> Work:
        """Start a collective."""
        return self._group.issue(call, piece, whole)

    def issue_send(self, call: Signature, tensor: Tensor, to: int) -> Work:
        """Send to one member."""
        return self._group.issue_send(call, tensor, to)

    def issue_recv(self, call: Signature, tensor: Tensor, sender: int) -> Receipt:
        """Receive a message."""
        return self._group.issue_recv(call, tensor, sender)

    @abstractmethod
    def around(self, group: Group, ranks: Sequence[int]) -> Self:
        """The same wrapper around a smaller group of these ranks."""

    def split(self, ranks: Sequence[int]) -> Self:
        """The smaller group of these ranks, wrapped."""
        return self.around(self._group.split(ranks), ranks)

    def split_off(self, ranks: tuple[int, ...]) -> Self:
        """Make the smaller group of these ranks."""
        return self.around(self._group.split_off(ranks), ranks)

    def tolerate_deaths(self, ranks: Sequence[int]) -> None:
        """Go on receiving from `ANYONE` when one of these members dies."""
        self._group.tolerate_deaths(ranks)

    def without(self, ranks: Sequence[int]) -> Self:
        """The group of all members but these, wrapped."""
        left = [rank for rank in range(self.size) if rank not in ranks]
        return self.around(self._group.without(ranks), left)

    def empty(
        self, numel: int, dtype: torch.dtype = torch.float32, device: torch.device | str = CPU
    ) -> Tensor:
        """Memory that the group moves in the cheapest way it has."""
        return self._group.empty(numel, dtype, device)

    def views_of_all(self, tensor: Tensor) -> list[Tensor]:
        """All members' tensors from one `empty`."""
        return self._group.views_of_all(tensor)

    def common(self, numel: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """One memory for all members."""
        return self._group.common(numel, dtype)

    def beat(self, busy_s: float = 0.0) -> None:
        """Report progress outside of calls; for `busy_s` seconds this member may make no call."""
        self._group.beat(busy_s)

    def check_members(self, label: str, waited_s: float) -> None:
        """Raise when a member will not come."""
        self._group.check_members(label, waited_s)

    def note_transfer(self, operation: str, num_bytes: int) -> None:
        """Count bytes that went over this worker's link outside of this group's calls."""
        self._group.note_transfer(operation, num_bytes)

    def note_mapped(self, operation: str, numel: int, dtype: torch.dtype) -> None:
        """Count a collective that was not called, because the members map each other's memory."""
        self._group.note_mapped(operation, numel, dtype)

    def fail(self, error: BaseException) -> None:
        """Report to the other members that this worker ends with an error."""
        self._group.fail(error)

    @property
    def closed(self) -> bool:
        """Whether this member has left the group."""
        return self._group.closed

    def close(self) -> None:
        """Leave the group."""
        self._group.close()
