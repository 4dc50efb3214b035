"""All members of a group agree on the smaller groups that it is divided into."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from shoal.comm.calls import check_agreement, check_split
from shoal.comm.group import Work


class _Gatherer(Protocol):
    """As much of a group as agreeing needs."""

    @property
    def rank(self) -> int:
        """This member's number."""
        ...

    @property
    def size(self) -> int:
        """How many members there are."""
        ...

    def all_gather(self, whole: Tensor, piece: Tensor) -> Work:
        """Fill `whole` with the members' pieces."""
        ...


def chosen_by_all(group: _Gatherer, ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks we go with, once everyone has named its own and nobody names others than they do. A collective."""
    chosen = check_split(group.rank, group.size, ranks)
    named = torch.full((group.size,), -1, dtype=torch.int64)
    named[: len(chosen)] = torch.tensor(chosen)
    table = torch.empty(group.size, group.size, dtype=torch.int64)
    group.all_gather(table, named).wait()
    check_agreement([[rank for rank in row if rank >= 0] for row in table.tolist()])
    return chosen
