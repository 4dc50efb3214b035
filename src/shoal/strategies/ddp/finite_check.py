"""Warn of gradients that are not finite before the exchange spreads them to all workers."""

import math
import warnings
from typing import Any, final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.strategies.buckets.bucket import Bucket


@final
class FiniteCheck:
    """Sums every bucket of this worker before it is sent: a sum that is not finite shows NaN or infinity.

    The worker whose gradients are bad warns, so no message is needed. Costs one pass over the gradients. On a GPU the
    sum is copied in the background and read in a later pass, so the host never waits for the device.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._times = 0
        self._pending: list[tuple[Bucket, Tensor, Any]] = []

    def look(self, bucket: Bucket) -> None:
        """Check a bucket that is about to be sent."""
        flat = bucket.gradients
        if not flat.is_floating_point():
            return
        if flat.is_cuda:
            self._look_later(bucket, flat)
        elif not math.isfinite(_sum(flat).item()):
            self._look_closely(bucket, flat)

    def look_at(self, name: str, rows: Tensor) -> None:
        """Check the rows of a sparse gradient; on a GPU, too, since their number is read on the host anyway."""
        if rows.is_floating_point() and not rows.isfinite().all():
            self._warn([name], "nan" if rows.isnan().any() else "inf")

    def _look_closely(self, bucket: Bucket, flat: Tensor) -> None:
        """A sum of finite numbers may overflow: only a number that is itself not finite is reported."""
        views = dict(zip(bucket.names, bucket.split(flat), strict=True))
        bad = {name: view for name, view in views.items() if not view.isfinite().all()}
        if bad:
            self._warn(list(bad), "nan" if any(view.isnan().any() for view in bad.values()) else "inf")

    def _look_later(self, bucket: Bucket, flat: Tensor) -> None:
        if torch.cuda.is_current_stream_capturing():
            return
        for pending in list(self._pending):
            before, total, event = pending
            if event.query():
                self._pending.remove(pending)
                if not math.isfinite(total.item()):
                    self._warn(before.names, "nan" if math.isnan(total.item()) else "inf")
        total = torch.empty((), dtype=torch.float32, pin_memory=True)
        total.copy_(_sum(flat), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._pending.append((bucket, total, event))

    def _warn(self, names: Any, value: str) -> None:
        """Warn the first time, and again after 10, 100, … times."""
        self._times += 1
        if not math.log10(self._times).is_integer():
            return
        several = f" and {len(names) - 1} others" if len(names) > 1 else ""
        so_far = f" ({self._times} times so far)" if self._times > 1 else ""
        warnings.warn(
            f"rank {self._group.rank}: the gradient of '{names[0]}'{several} is {value}{so_far}; "
            f"the exchange spreads it to all {self._group.size} workers "
            "(with torch's GradScaler this is normal: it leaves the step out)",
            stacklevel=2,
        )


def _sum(flat: Tensor) -> Tensor:
    return flat.sum(dtype=torch.float32) if flat.element_size() < 4 else flat.sum()
