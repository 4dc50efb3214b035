"""A rule instead of a sum: it sees every worker's bucket, and bears that some of them are bad."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.comm.group import Group, Work


@dataclass(frozen=True)
class Robust:
    """Phase 1, all-gather: everyone gets everyone's bucket. Phase 2, every worker applies the rule for itself.

    The aggregate stands for the sum, and a rule for one worker's bucket: what is left in the bucket is
    workers · rule(rows). All workers apply the same function to the same rows, so all have the same bits.

    Costs (W − 1)·n elements received by every worker, where an all-reduce has 2·n·(W − 1)/W, and memory for W
    buckets, twice while the rule sorts. The gathering may go on while the caller computes; the rule is applied in
    `wait`.
    """

    rule: Callable[[Tensor, int], Tensor]
    bears: int

    def __call__(self, group: Group, bucket: Tensor) -> Work:
        """Start to gather."""
        rows = torch.empty((group.size, bucket.numel()), dtype=bucket.dtype, device=bucket.device)
        return _Gathered(group.all_gather(rows, bucket), rows, bucket, self)


class _Gathered:
    """The rows are on their way; the rule is applied when they are there, and their memory let go."""

    def __init__(self, gathering: Work, rows: Tensor, bucket: Tensor, robust: Robust) -> None:
        self._gathering = gathering
        self._rows: Tensor | None = rows
        self._bucket = bucket
        self._robust = robust

    def wait(self) -> None:
        """Wait for the rows, and make one of them."""
        if self._rows is not None:
            self._gathering.wait()
            rows, self._rows = self._rows, None
            torch.mul(self._robust.rule(rows, self._robust.bears), len(rows), out=self._bucket)

    def done(self) -> bool:
        """Whether the rows are here; the rule is then applied."""
        if self._rows is not None and self._gathering.done():
            self.wait()
        return self._rows is None
