"""Replicas begin alike: rank 0's state goes to everyone, and it is said when theirs was another."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.errors import MismatchError


def begin_alike(group: Group, pieces: Mapping[str, Tensor], refuse: bool = False) -> None:
    """Copy rank 0's pieces into everyone's; with `refuse`, an error names the first piece that differs instead.

    Replicas that begin with different weights never become the same model, however exactly they add their gradients.
    Costs one broadcast per piece and memory for one more.
    """
    differs = -1
    for place, piece in enumerate(pieces.values()):
        first = piece.clone()
        group.broadcast(first).wait()
        if not torch.equal(first, piece):
            differs = place if differs < 0 else differs
            piece.copy_(first)
    table = torch.empty(group.size, dtype=torch.int64)
    group.all_gather(table, torch.tensor([differs])).wait()
    places = {rank: place for rank, place in enumerate(table.tolist()) if place >= 0}
    if not places:
        return
    name = list(pieces)[min(places.values())].removeprefix("model.")
    ranks = [str(rank) for rank, place in places.items() if place == min(places.values())]
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
