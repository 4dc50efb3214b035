"""The checks of a wrapper's exchanges: finite numbers, equal numbers of steps, a graph that is static."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.data.division.samplers import epochs_begun
from shoal.errors import MismatchError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.unused import refuse
from shoal.strategies.guard import repeated


@final
class FiniteCheck:
    """Warns of gradients that are not finite before the exchange spreads them to all workers.

    It sums every bucket of this worker before it is sent: a sum that is not finite shows NaN or infinity. The worker
    whose gradients are bad warns, so no message is needed. Costs one pass over the gradients. On a GPU the sum is
    copied in the background and read in a later pass, so the host never waits for the device.
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
            # A sum of finite numbers may overflow: only a number that is itself not finite is reported.
            self._look_closely(dict(zip(bucket.names, bucket.split(flat), strict=True)))

    def look_at(self, name: str, rows: Tensor) -> None:
        """Check the rows of a sparse gradient; on a GPU, too, since their number is read on the host anyway."""
        self._look_closely({name: rows})

    def _look_closely(self, views: Mapping[str, Tensor]) -> None:
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
        self._times += 1
        so_far = repeated(self._times)
        if so_far is None:
            return
        several = f" and {len(names) - 1} others" if len(names) > 1 else ""
        warnings.warn(
            f"rank {self._group.rank}: the gradient of '{names[0]}'{several} is {value}{so_far}; "
            f"the exchange spreads it to all {self._group.size} workers "
            "(with torch's GradScaler this is normal: it leaves the step out)",
            stacklevel=2,
        )


def _sum(flat: Tensor) -> Tensor:
    return flat.sum(dtype=torch.float32) if flat.element_size() < 4 else flat.sum()


@final
class EpochCheck:
    """A barrier before the first exchange of every epoch.

    A worker that has fewer steps begins the next epoch while another one exchanges gradients of the last. The barrier
    then meets that exchange, which is an error on both, instead of a sum of gradients of two epochs.

    An epoch begins where a program calls `set_epoch` of a shoal sampler, as all workers do. No other sign is certain:
    `train()` and `eval()` are often called on rank 0 alone. Costs one barrier per epoch.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._checked = self._begun = epochs_begun()
        self._is_used = False

    def look(self) -> None:
        """Notice that an epoch has begun. In the thread of the training loop; backward may run in another one."""
        self._begun = epochs_begun()

    def skip(self) -> None:
        """Workers may end at different times: there is nothing to check."""
        self._checked = self._begun

    def meet(self) -> None:
        """Before an exchange: if an epoch has begun, wait until it has begun on all workers."""
        if self._begun == self._checked:
            return
        self._checked = self._begun
        self._is_used = True
        with self.explained():
            self._group.barrier().wait()

    @contextmanager
    def explained(self) -> Generator[None]:
        """Around exchanges: an error because of the barrier says what it means."""
        try:
            yield
        except MismatchError as error:
            first, _, table = error.message.partition("\n")
            if not self._is_used or "barrier()" not in table:
                raise
            raise MismatchError(
                "the workers made unequal numbers of steps: some begin an epoch (a barrier after set_epoch), others "
                f"make one more step of the last epoch; {first}\n{table}",
                "Make the same number of steps on all workers: loop over sampler.step_sizes(batch_size) and call "
                "batch(num_samples=0) where a worker has no samples, or run the loop under join().",
            ) from error


@final
class StaticGraph:
    """Checks a graph that a program has declared static: every pass gives the same parameters as many gradients.

    It counts the gradients of each parameter in every pass that is exchanged, and compares them with the first pass."""

    def __init__(
        self, group: Group, params: Mapping[str, nn.Parameter], is_exchanging: Callable[[], bool]
    ) -> None:
        self._group, self._is_exchanging = group, is_exchanging
        self._names = {param: name for name, param in params.items()}
        self._first: Counter[str] | None = None
        self._counts: Counter[str] = Counter()
        hooks = [param.register_post_accumulate_grad_hook(self._count) for param in params.values()]
        self.removers = [hook.remove for hook in hooks]

    def _count(self, param: Tensor) -> None:
        if self._is_exchanging():
            self._counts[self._names[param]] += 1  # pyright: ignore[reportArgumentType]

    def forget(self) -> None:
        """The pass has failed."""
        self._counts = Counter()

    def check(self) -> None:
        """At the end of a pass. A worker that takes part without a pass has no counts, and nothing to compare."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        if self._first is None:
            self._first = counts
        elif counts != self._first:
            names = sorted(name for name in self._first | counts if counts[name] != self._first[name])
            refuse(
                self._group,
                f"the graph is declared static, but '{names[0]}' got {counts[names[0]]} gradients in this pass and "
                f"{self._first[names[0]]} in the first, on rank {self._group.rank} ({len(names)} parameters differ)",
                "Pass find_unused_parameters=True instead of static_graph=True.",
            )
