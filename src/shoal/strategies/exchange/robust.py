"""A rule instead of a sum: it sees every worker's bucket, and tolerates bad workers."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.exchange import Exchange


@dataclass(frozen=True)
class Robust(Exchange):
    """Phase 1, all-gather: every worker receives all buckets. Phase 2, every worker applies the rule.

    The aggregate stands for the sum, a rule for one worker's bucket: the bucket becomes workers · rule(rows, bad). All
    workers apply the same function to the same rows, so all hold the same bits.

    Costs (W − 1)·n elements received by every worker, where an all-reduce has 2·n·(W − 1)/W, and memory for W
    buckets, twice while the rule sorts. The all-gather may proceed while the caller computes; the rule is applied in
    `wait`.
    """

    rule: Callable[[Tensor, int], Tensor]
    bad: int

    @property
    def tolerates(self) -> int:
        """As many bad workers as the rule was built for."""
        return self.bad

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Start the all-gather."""
        flat = bucket.flat
        rows = torch.empty((group.size, flat.numel()), dtype=flat.dtype, device=flat.device)
        return _Gathered(group.all_gather(rows, flat), rows, flat, self)


class _Gathered:
    """An all-gather in progress; when the rows are complete, the rule is applied and their memory released."""

    def __init__(self, gathering: Work, rows: Tensor, flat: Tensor, robust: Robust) -> None:
        self._gathering = gathering
        self._rows: Tensor | None = rows
        self._flat = flat
        self._robust = robust

    def wait(self) -> None:
        """Wait for the rows, and apply the rule."""
        if self._rows is not None:
            self._gathering.wait()
            rows, self._rows = self._rows, None
            torch.mul(self._robust.rule(rows, self._robust.bad), len(rows), out=self._flat)

    def done(self) -> bool:
        """Whether the rows are complete; the rule is then applied."""
        if self._rows is not None and self._gathering.done():
            self.wait()
        return self._rows is None
