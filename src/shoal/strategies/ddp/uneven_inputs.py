"""Loops that end earlier on some workers: before they communicate, all workers say whether they still have inputs."""

from enum import IntEnum
from typing import final

import torch

from shoal.comm.group import Group
from shoal.errors import GroupError


class Next(IntEnum):
    """How a worker communicates next."""

    ENDED = 0
    """Not at all: it has no inputs."""
    BUFFERS = 1
    """It copies buffers, before a forward pass whose gradients stay its own."""
    BUFFERS_OF_EXCHANGE = 2
    """It copies buffers, before a forward pass whose gradients are exchanged."""
    GRADIENTS = 3


@final
class UnevenInputs:
    """Which workers still have inputs. Each question is one small all-reduce, in which every worker takes part.

    Gradients are divided by the number of all workers or, with `by_present`, of those with inputs. With `all_or_none`,
    a worker that ends before the others is an error on all of them.
    """

    def __init__(self, group: Group, by_present: bool = False, all_or_none: bool = False) -> None:
        self._group = group
        self._by_present, self._all_or_none = by_present, all_or_none
        self._present: list[int] = []
        """The ranks that had inputs the last time any had."""

    @property
    def last_rank(self) -> int | None:
        """The last of the ranks that had inputs in the last exchange; None before the first one."""
        return self._present[-1] if self._present else None

    def agree(self, here: Next) -> Next:
        """Say how this worker communicates next, and learn how the workers with inputs do."""
        table = torch.zeros(self._group.size, dtype=torch.int32)
        table[self._group.rank] = here
        self._group.all_reduce(table).wait()
        present = [rank for rank, step in enumerate(table.tolist()) if step != Next.ENDED]
        if self._all_or_none and 0 < len(present) < self._group.size:
            ended = [str(rank) for rank in range(self._group.size) if rank not in present]
            raise GroupError(
                f"rank {' and '.join(ended)} ran out of inputs before rank {present[0]}",
                "Remove throw_on_early_termination, or give all workers the same number of batches.",
            )
        self._present = present or self._present
        return Next(int(table.max()))

    def weight(self, of_all: float) -> float:
        """The weight of a gradient in this exchange; `of_all` where it is divided by the number of all workers."""
        return 1 / len(self._present) if self._by_present else of_all
