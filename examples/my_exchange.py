"""Two user-defined exchanges: how workers aggregate a bucket of gradients, in a few lines each.

An exchange is a function of (group, bucket). When it returns, every worker's `bucket`, a flat tensor, must hold the sum
of all workers' buckets, with the same bits on each. Check that with the contract tests of shoal's own exchanges:

    shoal check exchange examples.my_exchange:half_ring
    shoal check exchange examples.my_exchange:clipped --workers 5 --exchange.times 2

Then train with it:

    shoal train quickstart --strategy naive --workers 2 --exchange examples.my_exchange:half_ring
    shoal train quickstart --strategy naive --workers 3 --exchange examples.my_exchange:clipped --exchange.times 2
"""

import torch
from torch import Tensor

from shoal.comm.algorithms import ring
from shoal.comm.group import Group


def half_ring(group: Group, bucket: Tensor) -> None:
    """A ring all-reduce that sends half as many bytes: elements are sent as bfloat16, with 8 bits of precision.

    Float16 has 11 bits, but its smallest number is 6e-8: small gradients would become 0, and the check would fail.
    The sum is computed in bfloat16, too. If a worker kept its own chunk in float32 and sent it in bfloat16, it would
    hold other bits than the other workers.
    """
    small = bucket.to(torch.bfloat16)
    ring(group, small)
    bucket.copy_(small)


half_ring.precision = torch.bfloat16
"""The precision of the sum that `shoal check` requires."""


def clipped(group: Group, bucket: Tensor, times: float = 1.0) -> None:
    """The sum of buckets that are clipped to `times` the median norm, so that no worker dominates.

    `times` is an option: the value of --exchange.times is passed by name.
    """
    rows = torch.empty(group.size, bucket.numel(), dtype=bucket.dtype, device=bucket.device)
    group.all_gather(rows, bucket).wait()
    norms = torch.linalg.vector_norm(rows, dim=1)
    longest = times * norms.median()
    rows *= torch.where(norms > longest, longest / norms, 1.0)[:, None]
    bucket.copy_(rows.sum(0))


clipped.is_rule = True
"""The result is not a sum: `shoal check` then tests that no rank is preferred."""
