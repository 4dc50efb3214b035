"""Copies rank 0's initial state to all workers, and reports differences."""

import warnings
from collections.abc import Sequence

import torch

from shoal.comm.group import Group
from shoal.errors import MismatchError
from shoal.strategies.pieces.piece import Piece


def sync_initial_state(group: Group, pieces: Sequence[Piece], refuse: bool = False) -> None:
    """Copy rank 0's pieces to every worker; with `refuse`, an error names the first piece that differs instead.

    Replicas that start from different weights stay different, even if they exchange gradients exactly.
    Costs one broadcast per piece and memory for one more.
    """
    differs = -1
    for index, piece in enumerate(pieces):
        first = piece.tensor.clone()
        group.broadcast(first).wait()
        if not torch.equal(first, piece.tensor):
            differs = index if differs < 0 else differs
            piece.tensor.copy_(first)
    table = torch.empty(group.size, dtype=torch.int64)
    group.all_gather(table, torch.tensor([differs])).wait()
    first_by_rank = {rank: index for rank, index in enumerate(table.tolist()) if index >= 0}
    if not first_by_rank:
        return
    index = min(first_by_rank.values())
    name = pieces[index].name.removeprefix("model.")
    ranks = [str(rank) for rank, first in first_by_rank.items() if first == index]
    whose = f"'{name}' of rank{'s' * (len(ranks) > 1)} {', '.join(ranks)} is not rank 0's"
    if refuse:
        raise MismatchError(
            f"the workers' initial parameters differ: {whose}",
            "Give every rank the same seed and code; without --check-init all take rank 0's.",
        )
    if group.rank == 0:
        warnings.warn(
            f"the workers' initial parameters differed: {whose}; now all have rank 0's", stacklevel=3
        )
