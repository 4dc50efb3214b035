"""The optimizer's step inside backward: each parameter is updated when its gradient is final, which is then freed.

Under `ddp`, buckets take turns in two memories: each is summed, used and overwritten during backward.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.errors import DivergedError
from shoal.strategies.buckets.bucket import Bucket, Region
from shoal.strategies.buckets.gradient_slots import copy_gradients, second_gradient
from shoal.strategies.buckets.plan import MIB, Kind, PlannedBucket, Size, plan
from shoal.strategies.buckets.unused import refuse_unused
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.gradient_engine import OnFinal
from shoal.strategies.guard import Guard, square_of
from shoal.strategies.layout.layout import Layout
from shoal.strategies.strategy import Share
from shoal.strategies.update import Update

MOST_BYTES = 4 * MIB
"""The largest bucket of several parameters. Two buckets have memory at a time, so they are smaller than ddp's."""


IN_ONE_PASS = (
    "Use use_reentrant=False where the model is checkpointed, or leave out --memory.step_in_backward."
)
"""What mends a parameter that would be updated twice."""
Arrived = Callable[[Bucket, Sequence[Tensor]], None]
"""Given a bucket that holds the aggregate, and its parameters: use it. Its memory then belongs to another bucket."""


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


class _Memory:
    """One of two memories of a kind, and the bucket that is being summed there."""

    def __init__(self, flat: Tensor) -> None:
        self.flat = flat
        self.turn: _Turn | None = None
        self.work: Work | None = None


class _Turn:
    """A bucket, and the memory that it uses when it is its turn."""

    def __init__(self, planned: PlannedBucket, params: Mapping[str, Tensor], memory: _Memory) -> None:
        names = [*params]
        self.names = [names[index] for index in planned.params]
        self.params = [params[name] for name in self.names]
        self.memory = memory
        self.missing = {*self.names}
        regions: dict[str, Region] = {}
        offset = 0
        for name, param in zip(self.names, self.params, strict=True):
            regions[name] = Region(offset, param.shape, torch.empty(param.shape, device="meta").stride())
            offset += param.numel()
        self.bucket = Bucket(memory.flat[: planned.numel], regions)


@final
class RotatingBuckets:
    """Sums gradients bucket by bucket during backward, and hands over each sum as soon as its memory is needed.

    Phase 1, fill: when all gradients of a bucket are final, they are copied to a memory of the group, and every
    `param.grad` is dropped. Phase 2, `send` the bucket; all workers send in the same order, the reverse order of the
    parameters. Phase 3, before the memory is used again, or at the end: wait for the sum, and `arrived` uses it.

    Memory: twice the largest bucket, and gradients of a bucket that is not complete, never all gradients together.
    The gradients belong to one backward pass: a second one would find parameters that have changed.
    """

    def __init__(
        self,
        group: Group,
        params: Mapping[str, Tensor],
        on_final: OnFinal,
        send: Callable[[Bucket], Work],
        arrived: Arrived,
        most_bytes: int,
    ) -> None:
        """Constructing it is a collective. A bucket is full with `most_bytes` or more."""
        self._group, self._send, self._arrived = group, send, arrived
        self._num_params = len(params)
        sizes = [Size(param.numel(), Kind(param.dtype, param.device)) for param in params.values()]
        planned = plan(sizes, [*reversed(range(len(sizes)))], most_bytes, most_bytes)
        memories: dict[Kind, list[_Memory]] = {}
        for kind in dict.fromkeys(each.kind for each in planned):
            numels = sorted((each.numel for each in planned if each.kind == kind), reverse=True)
            memories[kind] = [_Memory(group.empty(numels[0], *kind)) for _ in numels[:2]]
        self._turns: list[_Turn] = []
        counts = dict.fromkeys(memories, 0)
        for each in planned:
            two = memories[each.kind]
            self._turns.append(_Turn(each, params, two[counts[each.kind] % len(two)]))
            counts[each.kind] += 1
        self._next = 0
        """The bucket to be sent next."""
        self._is_running = False
        self._removers = [
            on_final(param, partial(self._final, turn, name))
            for turn in self._turns
            for name, param in zip(turn.names, turn.params, strict=True)
        ]

    def begin(self) -> None:
        """The last backward pass before an update starts."""
        self._next, self._is_running = 0, True
        for turn in self._turns:
            turn.missing = {*turn.names}

    def _final(self, turn: _Turn, name: str, param: Tensor) -> None:
        del param
        if self._is_running:
            if name not in turn.missing:
                raise second_gradient(name, IN_ONE_PASS)
            turn.missing.remove(name)
            self._send_full()

    def _send_full(self) -> None:
        while self._next < len(self._turns) and not self._turns[self._next].missing:
            turn = self._turns[self._next]
            self._next += 1
            self._finish(turn.memory)
            with torch.no_grad():
                copy_gradients(dict(zip(turn.names, turn.params, strict=True)), turn.bucket.views)
            for param in turn.params:
                param.grad = None
            turn.memory.turn, turn.memory.work = turn, self._send(turn.bucket)

    def _finish(self, memory: _Memory) -> None:
        """Wait for the sum in a memory, if one is under way, and have it used."""
        turn, work = memory.turn, memory.work
        if turn is None or work is None:
            return
        memory.turn = memory.work = None
        work.wait()
        for param, view in zip(turn.params, turn.bucket.views, strict=True):
            param.grad = view
        self._arrived(turn.bucket, turn.params)
        for param in turn.params:
            param.grad = None

    def complete(self) -> None:
        """Backward is over: send the other buckets, and use all sums. Without `begin`, a worker sends zeros."""
        has_samples, self._is_running = self._is_running, False
        if not has_samples:
            self._next = 0
        left = self._turns[self._next :]
        missing = [
            name
            for turn in left
            for name, param in zip(turn.names, turn.params, strict=True)
            if param.grad is None
        ]
        if missing and has_samples:
            refuse_unused(self._group, missing, self._num_params)
        for turn in left:
            turn.missing.clear()
        self._send_full()
        for turn in self._turns:
            if turn.memory.turn is turn:
                self._finish(turn.memory)

    def remove(self) -> None:
        """Remove the hooks from the parameters."""
        for remove in self._removers:
            remove()


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
