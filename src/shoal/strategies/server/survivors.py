"""Going on without workers that were killed: who is left, and under which number.

Phase 1, a server that waits for a request sees that a worker has died. It ignores what may still come from it, gives
its turn to another, and notes the loss where all ranks can read it. Phase 2, when all turns are finished, the workers
meet: the reply that sends them to the meeting says how many losses count. Phase 3, server and workers form groups
without the lost ones; everything that uses these groups, such as evaluation and saving, goes on with fewer members.

A worker that dies while the others meet, before they have formed groups or in a collective, ends the run, and so does
rank 0, which writes the results.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch

from shoal.comm.group import Group
from shoal.comm.traced import Traced
from shoal.errors import ConfigError


class LostWorker(NamedTuple):
    """A worker that is lost."""

    rank: int
    version: int
    """Updates that had been made before."""
    step: int
    """The step of the turn that it had under way, which another worker takes; −1: none."""


@final
class Survivors:
    """The ranks that are left of a world of `workers` and their server.

    Ranks are renumbered without gaps in a smaller group; ledger, turns and events keep the first numbers.
    """

    def __init__(self, world: Group, workers: int, peers: Group | None = None) -> None:
        """`peers` has the workers, on a worker. A collective of the world."""
        if world.kind != "shm" or not isinstance(world, Traced):
            raise ConfigError(
                f"--strategy.on_lost continue does not support {world.kind} groups, which cannot go on without a "
                "member that has died",
                "Run all workers as processes of one machine, without --link and with --group shm.",
            )
        self._world, self._peers = world, peers
        self._ranks = list(range(world.size))
        """The first number of each rank that is left."""
        self._table = world.common(workers * len(LostWorker._fields), torch.int64).view(workers, -1)
        self.losses: list[LostWorker] = []
        """Those that have been left out."""
        if peers is None:
            world.tolerate_deaths(range(1, workers))

    def can_lose(self, first_number: int) -> bool:
        """Whether the run goes on without this rank: a worker other than rank 0."""
        return 0 < first_number < len(self._table)

    def first_number(self, rank: int) -> int:
        """The number that a rank of the world had at first."""
        return self._ranks[rank]

    def rank_now(self, first_number: int) -> int:
        """The rank in the world of a member, by its first number."""
        return self._ranks.index(first_number)

    def note(self, losses: Sequence[LostWorker]) -> None:
        """Write all losses so far where the workers can read them. Only a server calls it, before it replies."""
        for row, loss in zip(self._table, losses, strict=False):
            row.copy_(torch.tensor(loss))

    def meet(self, losses: int) -> None:
        """Go on without the first `losses` workers that were lost. All that are left call it with the same number."""
        rows: list[list[int]] = self._table[len(self.losses) : losses].tolist()
        if not rows:
            return
        gone = [self.rank_now(row[0]) for row in rows]
        self._world.go_on_without(gone)
        if isinstance(self._peers, Traced):  # the workers have the first ranks of the world
            self._peers.go_on_without(gone)
        self._ranks = [number for rank, number in enumerate(self._ranks) if rank not in gone]
        self.losses += [LostWorker(*row) for row in rows]
