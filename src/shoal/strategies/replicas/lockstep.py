"""Parts of a share in lockstep: all workers run the model the same number of times, if necessary on empty batches.

For models whose forward pass contains collectives (synchronised batch norm, gathered parameters).
"""

from collections.abc import Iterable, Iterator

import torch

from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.data.dataset import Batch
from shoal.strategies.strategy import Share


def in_lockstep(group: Group, share: Share) -> Iterator[Batch]:
    """The parts, then empty ones while other workers have parts. Costs a small all-reduce per part."""
    mine = iter(share.parts)
    while True:
        part = next(mine, None)
        is_there = torch.tensor([part is not None], dtype=torch.int32)
        group.all_reduce(is_there, Op.MAX).wait()
        if not is_there.item():
            return
        if part is None:
            assert (
                share.empty is not None
            )  # whoever hands out shares without samples says what none look like
            part = share.empty()
        yield part


def in_rounds(group: Group, parts: Iterable[Batch]) -> Iterator[Batch | None]:
    """The parts, then None while other workers have parts: for workers that sum the gradients of every part.

    Costs a small all-reduce per part, which runs while the part is computed where the group allows it.
    """
    mine = iter(parts)
    part = next(mine, None)
    while True:
        following = next(mine, None)
        goes_on = torch.tensor([following is not None], dtype=torch.int32)
        work = group.all_reduce(goes_on, Op.MAX)
        yield part
        work.wait()
        if not goes_on.item():
            return
        part = following
