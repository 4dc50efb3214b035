"""Who still has inputs: asked of all workers before every exchange, where loops may end at different times."""

from collections.abc import Callable, Sequence
from typing import final

import torch
from torch.distributed.algorithms.join import JoinHook

from shoal.comm.group import Group
from shoal.errors import GroupError


@final
class RollCall:
    """Every worker answers each call. Costs one small all-reduce.

    Gradients are divided by the number of all workers, or with `by_present` of those still there. With `all_or_none`, a
    worker that has ended before the others is an error, on all of them.
    """

    def __init__(self, group: Group, by_present: bool = False, all_or_none: bool = False) -> None:
        self._group = group
        self._by_present, self._all_or_none = by_present, all_or_none
        self.last_present: list[int] = []
        """Who was there at the last call at which anybody was."""

    def answer(self, here: bool) -> list[int]:
        """Say whether we still have inputs; the ranks of those who have."""
        table = torch.zeros(self._group.size, dtype=torch.int32)
        table[self._group.rank] = here
        self._group.all_reduce(table).wait()
        present = [rank for rank, is_there in enumerate(table.tolist()) if is_there]
        if self._all_or_none and 0 < len(present) < self._group.size:
            ended = [str(rank) for rank in range(self._group.size) if rank not in present]
            raise GroupError(
                f"rank {' and '.join(ended)} ran out of inputs before rank {present[0]}",
                "Leave out throw_on_early_termination, or give every worker equally many batches.",
            )
        self.last_present = present or self.last_present
        return present

    def weight(self, present: Sequence[int], of_all: float) -> float:
        """What a gradient counts for with these present; `of_all` if it is divided by the number of all."""
        return 1 / len(present) if self._by_present else of_all


@final
class Ended(JoinHook):
    """For torch's `Join` around several things at once: what a worker does that has no inputs left."""

    def __init__(self, once_more: Callable[[], object], at_end: Callable[[], None]) -> None:
        self._once_more, self._at_end = once_more, at_end

    def main_hook(self) -> None:
        """Take part in one more exchange of the others."""
        self._once_more()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Nobody has inputs left."""
        del is_last_joiner
        self._at_end()
