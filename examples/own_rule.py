"""A robust rule of your own: the geometric median of the workers' gradients (Pillutla et al., 2019).

A rule is a function of `rows`, the gradients of all workers [workers, elements], and `bad`, the number of rows that may
hold anything (--exchange.bad). It returns what stands for one row. Check it with the contract of shoal's own rules,
then train with it while a worker sends wrong gradients:

    shoal check rule examples.own_rule:geometric_median --exchange.bad 2
    shoal train quickstart --strategy ddp --workers 3 --exchange robust:examples.own_rule:geometric_median \
        --fault "rank=1,gradient=flip"
"""

import torch
from torch import Tensor

ROUNDS = 30


def geometric_median(rows: Tensor, bad: int) -> Tensor:
    """The point with the smallest sum of distances to the rows; fewer than half of them cannot move it far.

    Weiszfeld's algorithm: a mean with weights 1 / distance, again and again. Rows with NaN or infinity are left out.
    """
    kept = rows[rows.isfinite().all(1)].double()
    if len(kept) == 0:
        return torch.full_like(rows[0], torch.nan)
    point = kept.median(0).values
    for _ in range(ROUNDS):
        weights = 1 / (kept - point).norm(dim=1).clamp(min=1e-12)
        point = (weights / weights.sum()) @ kept
    return point.to(rows.dtype)
