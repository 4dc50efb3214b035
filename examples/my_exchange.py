"""Two exchanges of one's own: how workers agree on a bucket of gradients, in a few lines each.

An exchange is a function of (group, bucket). When it is over, every worker's `bucket`, a flat tensor, must hold the
sum of all workers' buckets: the same bits on each. Whether it does is judged by the tests that ours have to pass:

    cd examples
    shoal check exchange my_exchange:half_ring
    shoal check exchange my_exchange:clipped --workers 5 --exchange.times 2

And then it trains:

    shoal train quickstart --strategy naive --workers 2 --exchange my_exchange:half_ring
    shoal train quickstart --strategy naive --workers 3 --exchange my_exchange:clipped --exchange.times 2
"""

import torch
from torch import Tensor

from shoal.comm.algorithms import ring
from shoal.comm.group import Group


def half_ring(group: Group, bucket: Tensor) -> None:
    """A ring that sends half as many bytes: every number goes as bfloat16, of which 8 bits are its digits.

    Why not float16, which has 11? Its smallest number is 6e-8: small gradients would vanish, and the check says so.
    The sum is taken in bfloat16 too. One that keeps its own chunk in full precision, and sends it on in half, would be
    more precise on one worker than on the others: they would no longer hold the same bits.
    """
    small = bucket.to(torch.bfloat16)
    ring(group, small)
    bucket.copy_(small)


half_ring.precision = torch.bfloat16
"""What the check may expect: a sum as precise as this, and no more."""


def clipped(group: Group, bucket: Tensor, times: float = 1.0) -> None:
    """The sum, but no worker pulls further than `times` the median worker: longer buckets are made shorter.

    `times` is an option: whatever is given as --exchange.times arrives here by its name.
    """
    rows = torch.empty(group.size, bucket.numel(), dtype=bucket.dtype, device=bucket.device)
    group.all_gather(rows, bucket).wait()
    norms = torch.linalg.vector_norm(rows, dim=1)
    longest = times * norms.median()
    rows *= torch.where(norms > longest, longest / norms, 1.0)[:, None]
    bucket.copy_(rows.sum(0))


clipped.is_rule = True
"""Not a sum where a bucket was clipped: the check leaves the sum out, and looks that no rank is preferred."""
