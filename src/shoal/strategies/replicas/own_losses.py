"""The loss of all workers, where each knows the losses of its own samples only."""

from collections.abc import Sequence

import torch

from shoal.comm.group import Group


def part_of(samples: Sequence[int], workers: int) -> float:
    """A worker's part of all samples: (its own, those of all workers); before the first step, an equal part.

    >>> part_of((3, 12), workers=2), part_of((0, 0), workers=2)
    (0.25, 0.5)
    """
    mine, of_all = samples
    return mine / of_all if of_all else 1 / workers


def agreed_loss(group: Group, loss_sum: float, part: float) -> float:
    """The sum of the workers' losses, each times its part; all workers call it. Equal losses stay as they are."""
    total = torch.tensor([loss_sum * part], dtype=torch.float64)
    group.all_reduce(total).wait()
    return total.item()
