"""Fills buckets with gradients, and exchanges each bucket when it is full.

Used by the strategy `ddp` and by the wrapper `shoal.DistributedDataParallel`: both say which backward pass is the last
one before an update, and when it is over.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.comm.reduction import Op
from shoal.errors import ConfigError
from shoal.parallel import buckets
from shoal.parallel.comm_hook import HookBucket, HookWork
from shoal.parallel.engine import OnFinal
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.places import Factor, Filling, Slot, fill

Unused = Literal["refuse", "zero"]


def _ignore(tensor: Tensor) -> None:
    del tensor


@final
class Reducer:
    """Gradients reach the group's memory once, and are exchanged there.

    Phase 1, fill: autograd hands each gradient over in memory of its own; it is copied to its place in a bucket, and
    that place is then `param.grad`, to which later passes are added by autograd itself. It does not matter how and when
    gradients are dropped. (Places that autograd fills itself would have to be zeroed first and added to: three passes
    over memory instead of one.)
    Phase 2, exchange: every full bucket, in the same order on every worker.
    Phase 3, `wait`: every `param.grad` is the aggregate.

    *Early*, where work of the group moves on while backward computes and there are several buckets: hooks copy each
    gradient when it is final, and a bucket goes when its last one has come. Buckets are planned in the reverse order of
    the parameters, and once more, after the first exchange, in the order in which gradients became final on rank 0.
    *Late*, everywhere else: all is copied and exchanged when backward is over. In shared memory members move data only
    inside their own calls: nothing could happen meanwhile, and a hook per parameter costs more than it saves.

    A parameter that gets no gradient on this worker: `refuse` names it, here and to the others, who wait in vain.
    `zero` takes zero for it; if no worker has a gradient for it, it keeps none at all, as on one machine, where the
    optimizer then leaves it alone. That costs one small all-reduce per exchange.

    *Once* says that a pass gives every parameter at most one gradient; reentrant checkpoints of the same layer give it
    several, and only the end of the pass tells which is the last: then all goes late.

    `look` is shown every bucket's gradients before their exchange. `begins` is called, if given, by gradients that come
    unannounced, and may announce their pass. So many numbers as `rider` says may travel behind the last bucket's
    gradients, so that what else is to be summed costs no collective: `complete` is told who writes them.

    Memory: the gradients twice while backward hands them over, once afterwards.
    """

    def __init__(
        self,
        group: Group,
        exchange: Exchange,
        params: Mapping[str, Tensor],
        on_final: OnFinal,
        *,
        first_bytes: int,
        most_bytes: int,
        unused: Unused = "refuse",
        once: bool = True,
        look: Callable[[Tensor], None] = _ignore,
        begins: Callable[[], None] | None = None,
        rider: int = 0,
    ) -> None:
        self._group = group
        self._exchange = exchange
        self._unused: Unused = unused
        self._look = look
        self._begins = begins
        self._params = list(params.values())
        self._slots = [Slot(index, name, param) for index, (name, param) in enumerate(params.items())]
        self._sizes = buckets.sizes_of(self._params)
        self._order = [*reversed(range(len(self._slots)))]
        planned = buckets.plan(self._sizes, self._order, first_bytes, most_bytes)
        self.is_early = once and group.overlaps and len(planned) > 1
        """Whether buckets go while backward is still at work."""
        self._first_bytes = first_bytes if self.is_early else most_bytes
        self._most_bytes = most_bytes
        # With gradients of several kinds it may change which kind's bucket is the last; half precision is no place for
        # other numbers.
        kinds = {size.kind for size in self._sizes}
        self._num_riding = rider if len(kinds) == 1 and next(iter(kinds)).dtype.itemsize >= 4 else 0
        self._memory = buckets.Memory(group, self._sizes, spare=self._num_riding)
        self.rider: Tensor | None = None
        """The numbers that travel behind the last gradients, if there is room for them."""
        self._seen: list[int] | None = [] if self.is_early else None
        """The order in which gradients become final; none once the buckets follow it, or where it does not matter."""
        self._cut()
        self._exchanging = False
        self._weight: Factor | None = None
        self._last_weight = Factor(1.0)
        self._next = 0
        """The bucket to be exchanged next."""
        self._works: list[Work] = []
        self._comm_hook: Callable[[HookBucket], Any] | None = None
        hook = self._arriving if self.is_early else self._announcing if begins else None
        self._removers = [on_final(slot.param, hook(slot)) for slot in self._slots if hook]

    def _cut(self) -> None:
        """Lay the gradients out in the order expected."""
        self._buckets: list[Filling] = []
        planned = buckets.plan(self._sizes, self._order, self._first_bytes, self._most_bytes)
        for bucket in planned:
            slots = [self._slots[param] for param in bucket.params]
            spare = self._num_riding if bucket is planned[-1] else 0
            filling = Filling(self._memory.flat(bucket), self._memory.flat(bucket, spare), slots)
            for slot, view in zip(slots, self._memory.views(bucket, self._params), strict=True):
                slot.view, slot.bucket = view, filling
            self._buckets.append(filling)
        if self._num_riding:
            self.rider = self._buckets[-1].flat[-self._num_riding :]

    # What hooks do.

    def _announcing(self, slot: Slot) -> Callable[[Tensor], None]:
        del slot
        begins = self._begins

        def final(param: Tensor) -> None:
            del param
            if not self._exchanging and begins is not None:
                begins()

        return final

    def _arriving(self, slot: Slot) -> Callable[[Tensor], None]:
        announce = self._announcing(slot)

        def final(param: Tensor) -> None:
            announce(param)
            if self._exchanging and slot.arrived:
                raise ConfigError(
                    f"parameter '{slot.name}' got a second gradient in the same pass, after the first had been sent",
                    "Say static_graph=True, or use_reentrant=False where the model is checkpointed.",
                )
            fill([slot], self._weight)
            if self._exchanging:
                self._arrive(slot)

        return final

    def _arrive(self, slot: Slot) -> None:
        slot.arrived = True
        if self._seen is not None:
            self._seen.append(slot.index)
        slot.bucket.num_missing -= 1
        if self._works:
            self._works[-1].done()  # asking moves it forward
        if not slot.bucket.num_missing:
            self._exchange_full()

    # From gradients to aggregates.

    def prepare(self, weight: float | None = None) -> None:
        """Announce the last backward pass before an update: its gradients, times `weight`, are exchanged."""
        for bucket in self._buckets:
            bucket.num_missing = len(bucket.slots)
        if self.rider is not None:
            self._buckets[-1].num_missing += 1  # it is written when backward is over
        for slot in self._slots:
            slot.arrived = False
        self._next = 0
        if weight is not None and weight != self._last_weight.value:
            self._last_weight = Factor(weight)
        self._weight = None if weight is None else self._last_weight
        self._exchanging = True

    def complete(self, write: Callable[[Tensor], None] = _ignore) -> None:
        """Backward is over: exchange what is left. Without `prepare`, a worker without samples: it gives zeros.

        `write(rider)` fills in the rider, if there is one: after the last look at gradients.
        """
        without_samples = not self._exchanging
        if without_samples:
            self.prepare(weight=0.0)
        left = self._buckets[self._next :]
        rest = [slot for bucket in left for slot in bucket.slots if not slot.arrived]
        absent = [slot for slot in rest if slot.param.grad is None]
        if absent and self._unused == "refuse" and not without_samples:
            self._refuse(absent)
        fill(rest, self._weight)
        for bucket in left:
            bucket.num_missing = 0
        self._exchange_full(write)
        self._exchanging = False
        self._weight = None
        present = self._found_somewhere() if self._unused == "zero" else None
        for slot in absent:
            if present is None or present[slot.index]:
                slot.param.grad = slot.view

    def wait(self) -> None:
        """Return when every gradient is the aggregate of all workers'."""
        for work in self._works:
            work.wait()
        self._works.clear()
        if self._seen is not None:
            self._follow_rank_0()

    @property
    def is_exchanging(self) -> bool:
        """Whether a pass has been announced and is not complete."""
        return self._exchanging

    def abandon(self) -> None:
        """Forget the pass announced: it has failed, here and on all others. What is under way comes to its end."""
        self._exchanging, self._weight = False, None
        for work in self._works:
            work.wait()
        self._works.clear()
        self._seen = None if self._seen is None else []

    def remove(self) -> None:
        """Take the hooks off the parameters."""
        for remove in self._removers:
            remove()

    def _exchange_full(self, write: Callable[[Tensor], None] = _ignore) -> None:
        """Start the exchange of all buckets that are full and whose turn it is."""
        while self._next < len(self._buckets) and not self._buckets[self._next].num_missing:
            bucket = self._buckets[self._next]
            self._look(bucket.gradients)
            self._next += 1
            if self.rider is not None and self._next == len(self._buckets):
                write(self.rider)
            self._works.append(self._start(bucket))

    def use_hook(self, hook: Callable[[HookBucket], Any]) -> None:
        """From now on, have this function make the aggregate of every bucket: it gives a future of it."""
        self._comm_hook = hook

    def _start(self, bucket: Filling) -> Work:
        if self._comm_hook is None:
            return self._exchange(self._group, bucket.flat)
        views, params = [slot.view for slot in bucket.slots], [slot.param for slot in bucket.slots]
        is_last = self._next == len(self._buckets)
        shown = HookBucket(self._next - 1, is_last, bucket.gradients, views, params)
        return HookWork(self._comm_hook(shown), shown)

    def _refuse(self, absent: Sequence[Slot]) -> None:
        missing = [f"'{slot.name}'" for slot in sorted(absent, key=lambda slot: slot.index)]
        names = ", ".join(missing[:5]) + (" and others" if missing[5:] else "")
        error = ConfigError(
            f"no gradient reached {names} on rank {self._group.rank} ({len(absent)} of {len(self._slots)} parameters)",
            "Freeze it before, leave it out, or take zero for it: "
            'find_unused_parameters=True or unused="zero" (--strategy.unused zero).',
        )
        # The others wait for a bucket that will not come: they are told why.
        self._group.fail(error)
        raise error

    def _found_somewhere(self) -> list[bool]:
        """For each parameter, whether any worker has a gradient."""
        found = torch.tensor([slot.param.grad is not None for slot in self._slots], dtype=torch.int32)
        self._group.all_reduce(found, Op.MAX).wait()
        return [bool(one) for one in found.tolist()]

    def _follow_rank_0(self) -> None:
        """Lay the buckets out in the order in which gradients became final on rank 0, once it has had any."""
        seen = self._seen or []
        rest = [index for index in self._order if index not in set(seen)]
        told = torch.tensor([bool(seen), *seen, *rest])
        self._group.broadcast(told).wait()
        known, *order = told.tolist()
        self._seen = None if known else []
        if known and order != self._order:
            held = [(slot, slot.view.clone()) for slot in self._slots if slot.param.grad is slot.view]
            self._order = order
            self._cut()
            for slot, gradient in held:
                slot.view.copy_(gradient)
                slot.param.grad = slot.view
