"""The optimizer's step inside backward: each parameter is updated when its gradient is final, which is then freed."""

from collections.abc import Sequence
from functools import partial
from typing import final

from torch import Tensor

from shoal.comm.group import Work
from shoal.errors import DivergedError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.gradient_slots import second_gradient
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.buckets.rotating import IN_ONE_PASS, RotatingBuckets
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.guard import Guard, square_of
from shoal.strategies.layout.layout import Layout
from shoal.strategies.strategy import Share
from shoal.strategies.update import Update

MOST_BYTES = 4 * MIB
"""The largest bucket of several parameters. Two buckets have memory at a time, so they are smaller than ddp's."""


def bucket_bytes(bucket_mib: float) -> int:
    """The size from which a bucket is full, given that of `ddp`'s settings."""
    return min(MOST_BYTES, int(bucket_mib * MIB))


@final
class StepInBackward:
    """The gradients of a share, and the update by them, in one pass; gradients of all parameters never exist together.

    When backward has computed a parameter's gradient, every operation that uses the parameter has been differentiated,
    so the parameter may change. Autograd would notice if that were not so: it refuses a saved tensor that has changed.
    Reentrant checkpointing, a backward pass inside another, can complete a gradient twice: that is refused.

    The update is that of a step after backward, to the bit, because each element is updated from its own gradient. What
    needs all gradients before the first update is refused with it: clipping by the norm of all, and leaving a step out
    because of one bad gradient.
    """

    def __init__(self, layout: Layout, update: Update) -> None:
        self._layout, self._update = layout, update
        self._lr = 0.0
        self._is_last = False
        self._updated: set[str] = set()
        """Parameters that this backward pass has updated."""
        for name, param in layout.params.items():
            layout.on_final(param, partial(self._final, name))

    def __call__(self, share: Share, lr: float) -> Tensor:
        """Compute and update; returns the loss, as `Layout.gradients` does."""
        self._lr = lr
        try:
            return self._layout.gradients(share, before_last=self._begin)
        finally:
            self._is_last = False

    def _begin(self) -> None:
        self._is_last = True
        self._updated.clear()

    def _final(self, name: str, param: Tensor) -> None:
        if self._is_last:
            if name in self._updated:
                raise second_gradient(name, IN_ONE_PASS)
            self._updated.add(name)
            self._update.step_only([param], self._lr)
            param.grad = None


@final
class SumsInBackward:
    """The same under `ddp`: buckets are summed over the workers during backward, and each sum updates its parameters.

    A sum that is not finite stops all workers before it reaches a weight: they hold the same sum, so all find it. The
    weights of buckets before it have been updated by then, with finite numbers.
    """

    def __init__(
        self, layout: Layout, update: Update, exchange: Exchange, guard: Guard, bucket_mib: float
    ) -> None:
        self._layout, self._update, self._guard = layout, update, guard
        self._lr = 0.0
        self._share = Share((), 1, 0)
        group = guard.group
        self._buckets = RotatingBuckets(
            group,
            layout.params,
            layout.on_final,
            partial(self._send, exchange),
            self._arrived,
            bucket_bytes(bucket_mib),
        )

    def __call__(self, share: Share, lr: float) -> Tensor:
        """Compute, sum and update; returns this worker's part of the loss."""
        self._lr, self._share = lr, share
        loss = self._layout.gradients(share, before_last=self._buckets.begin)
        with self._layout.span("exchange", "move"):
            self._buckets.complete()
        return loss

    def _send(self, exchange: Exchange, bucket: Bucket) -> Work:
        self._guard.look(bucket.gradients)
        return exchange(self._guard.group, bucket)

    def _arrived(self, bucket: Bucket, params: Sequence[Tensor]) -> None:
        if not square_of(bucket.gradients).isfinite():
            # Names the workers whose gradients are not finite; where all are, their sum is not.
            self._guard.agree(self._layout.zero, self._share)
            raise DivergedError(
                f"the sum of the workers' gradients of {bucket.names[0]} is not finite: stopped before it reached the "
                "weights",
                "Try a tenth of the learning rate.",
            )
        self._update.step_only(params, self._lr)
