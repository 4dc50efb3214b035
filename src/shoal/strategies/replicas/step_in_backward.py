"""The optimizer's step inside backward: each parameter is updated when its gradient is final, which is then freed.

Under `ddp`, buckets take turns in two memories: each is summed, used and overwritten during backward.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.gradient_slots import copy_gradients, second_gradient
from shoal.strategies.buckets.plan import MIB, Kind, plan, regions_of
from shoal.strategies.buckets.unused import refuse_unused
from shoal.strategies.gradient_engine import OnFinal
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


class _Turn:
    """A bucket whose memory others use before and after it."""

    def __init__(self, params: Mapping[str, Tensor], memory: Tensor, before: "_Turn | None") -> None:
        self.params, self.memory = params, memory
        self.before = before
        """The bucket that uses the memory before this one."""
        self.missing = {*params}
        """Parameters whose gradients are not final."""
        self.work: Work | None = None
        """The sum that is under way."""
        numel = sum(param.numel() for param in params.values())
        self.bucket = Bucket(memory[:numel], regions_of(params))


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
        planned = plan([*params.values()], [*reversed(range(len(params)))], most_bytes, most_bytes)
        self._turns: list[_Turn] = []
        names, of_kind = [*params], dict[Kind, list[_Turn]]()
        for each in planned:
            alike = of_kind.setdefault(each.kind, [])
            before = alike[-2] if len(alike) > 1 else None
            most = max(other.numel for other in planned if other.kind == each.kind)
            memory = group.empty(most, *each.kind) if before is None else before.memory
            alike.append(_Turn({names[index]: params[names[index]] for index in each.params}, memory, before))
            self._turns.append(alike[-1])
        self._next = 0
        """The bucket to be sent next."""
        self._is_running = False
        for turn in self._turns:
            for name, param in turn.params.items():
                on_final(param, partial(self._final, turn, name))

    def begin(self) -> None:
        """The last backward pass before an update starts."""
        self._next, self._is_running = 0, True
        for turn in self._turns:
            turn.missing = {*turn.params}

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
            if turn.before is not None:
                self._finish(turn.before)
            with torch.no_grad():
                copy_gradients(turn.params, turn.bucket.views)
            for param in turn.params.values():
                param.grad = None
            turn.work = self._send(turn.bucket)

    def _finish(self, turn: _Turn) -> None:
        """Wait for the sum of a bucket, if it is under way, and have it used."""
        if turn.work is None:
            return
        work, turn.work = turn.work, None
        work.wait()
        params = [*turn.params.values()]
        for param, view in zip(params, turn.bucket.views, strict=True):
            param.grad = view
        self._arrived(turn.bucket, params)
        for param in params:
            param.grad = None

    def complete(self) -> None:
        """Backward is over: send the other buckets, and use all sums. Without `begin`, a worker sends zeros."""
        has_samples, self._is_running = self._is_running, False
        if not has_samples:
            self._next = 0
        left = self._turns[self._next :]
        missing = [name for turn in left for name, param in turn.params.items() if param.grad is None]
        if missing and has_samples:
            refuse_unused(self._group, missing, self._num_params)
        for turn in left:
            turn.missing.clear()
        self._send_full()
        for turn in self._turns:
            self._finish(turn)
