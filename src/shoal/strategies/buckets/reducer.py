"""Fill buckets with gradients, and send each bucket when it is full.

*Filling* is decided here: when a gradient is final, which bucket is full, whose turn it is. *Sending* is a function,
`send(bucket) -> Work`: an exchange, a communication hook, or nothing where all workers see the bucket (`onecopy`).
The strategy `ddp` and the wrapper `shoal.DistributedDataParallel` both announce the last backward pass before an
update, and its end.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group, Work
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.buckets.gradient_slots import (
    Factor,
    Filling,
    LinearGradients,
    Slot,
    factor_of,
    fill,
    second_gradient,
)
from shoal.strategies.buckets.plan import Memory
from shoal.strategies.buckets.unused import Unused, present_somewhere, refuse_dropped, refuse_unused
from shoal.strategies.gradient_engine import OnFinal

Send = Callable[[Bucket], Work]
"""Start to aggregate a full bucket. When the work is done, the bucket holds the aggregate."""


MOVED_BYTES = 256 * 1024
"""The size from which a gradient is copied to its slot when it is final, where buckets are sent late: the copy takes
longer than the call of the hook, and reads from the cache what it would otherwise read from memory."""


@dataclass(frozen=True)
class ReducerOptions:
    """How gradients are divided into buckets, and which gradients are expected."""

    first_bytes: int
    """The size of the first bucket, where buckets are sent during backward."""
    most_bytes: int
    """The size of all others."""
    unused: Unused = "refuse"
    """Parameters without a gradient: `refuse` names them in an error, `zero` replaces the gradient with zero."""
    once: bool = True
    """Whether a pass gives every parameter at most one gradient. Reentrant checkpoints of one layer give several."""
    final_in_backward: bool = True
    """Whether a pass makes gradients whole. Sums along a tree of leaves are whole after it: hooks would copy a part."""
    num_piggyback: int = 0
    """Elements after the last bucket's gradients, for other numbers to be summed."""


@final
class Reducer:
    """Copies gradients into buckets, and has the buckets sent.

    Phase 1, fill: autograd produces each gradient in memory of its own; it is copied to its slot in a bucket, and the
    slot becomes `param.grad`, to which autograd adds later passes. It does not matter how and when the program drops
    gradients. (If autograd wrote to the slots, they would have to be zeroed first and added to: three passes over
    memory instead of one.)
    Phase 2, send: every full bucket, in the same order on every worker.
    Phase 3, `wait`: every `param.grad` is the aggregate.

    *Early*, if the group's work proceeds during backward and there are several buckets: hooks copy each gradient when
    it is final, and a bucket is sent when its last gradient is. The first plan follows the reverse order of the
    parameters; after the first exchange, a second plan follows the order in which gradients became final on rank 0.
    *Late*, otherwise: all gradients are copied and sent when backward is over. In shared memory members move data only
    inside their own calls, so nothing would happen in between, and a hook per parameter costs more than it saves.
    Only large gradients (`MOVED_BYTES`) are copied by a hook, while they are in the cache, so that their memory serves
    the next one. Passes that may give a parameter several gradients (`once=False`) are late, too: the last one is known
    only at their end.

    With `unused="zero"`, a parameter for which no worker has a gradient keeps none, as on one machine, where the
    optimizer then skips it. That costs one small all-reduce per exchange.

    The bucket with the piggyback is always sent last, and in `complete`: `send` can then write the piggyback.
    `begins`, if given, is called by gradients of a pass that was not announced, and may announce it.

    Memory: the gradients once, and in backward the largest of them and those below `MOVED_BYTES` a second time.
    """

    def __init__(
        self,
        group: Group,
        params: Mapping[str, Tensor],
        on_final: OnFinal,
        send: Send,
        options: ReducerOptions,
        begins: Callable[[], None] | None = None,
    ) -> None:
        self._send = send
        self._group = group
        self._options = options
        self._begins = begins
        self._slots = [Slot(index, name, param) for index, (name, param) in enumerate(params.items())]
        self._memory = Memory(group, params, options.num_piggyback)
        self._order = [*reversed(range(len(self._slots)))]
        planned = self._memory.cut(self._order, options.first_bytes, options.most_bytes)
        self.is_early = options.once and options.final_in_backward and group.overlaps and len(planned) > 1
        """Whether buckets are sent during backward."""
        self._seen: list[int] | None = [] if self.is_early else None
        """The order in which gradients become final; None once the buckets follow it, or where it does not matter."""
        self._fillings: list[Filling] = []
        self.linear = LinearGradients(nn.Module(), ())
        """Linear layers that compute their weights' gradients in the slots, between its `begin` and `end`: none yet."""
        self._cut()
        self.is_exchanging = False
        """Whether a pass has been announced and is not complete."""
        self._reached: set[int] = set()
        """The parameters that had a gradient in the pass that is exchanged, as far as hooks have seen it."""
        self._weight: Factor | None = None
        self._next = 0
        """The bucket to be sent next."""
        self._works: list[Work] = []
        self._removers = [
            on_final(slot.param, hook)
            for slot in self._slots
            if (hook := self._hook_of(slot, has_begins=begins is not None)) is not None
        ]

    def _cut(self) -> None:
        """Divide the memory into buckets that follow the expected order."""
        most_bytes = self._options.most_bytes
        first_bytes = self._options.first_bytes if self.is_early else most_bytes
        by_name = {slot.name: slot for slot in self._slots}
        self._fillings = [
            Filling(bucket, [by_name[name] for name in bucket.names])
            for bucket in self._memory.cut(self._order, first_bytes, most_bytes)
        ]
        self.piggyback = self._fillings[-1].bucket.piggyback if self._fillings else None
        """The numbers summed together with the last bucket, if there is room for them."""

    @property
    def buckets(self) -> list[Bucket]:
        """All buckets, in the order in which they are sent."""
        return [filling.bucket for filling in self._fillings]

    # Hooks.

    def _hook_of(self, slot: Slot, has_begins: bool) -> Callable[[Tensor], None] | None:
        """What to call when a slot's gradient is final."""
        if self.is_early:
            return partial(self._final, slot)
        if slot.param.nbytes >= MOVED_BYTES and self._options.final_in_backward:
            return partial(self._move, slot)
        return self._announce if has_begins else None

    def _move(self, slot: Slot, param: Tensor) -> None:
        """Copy a gradient to its slot at once; `complete` multiplies it by the weight."""
        self._announce(param)
        fill([slot], None)

    def _announce(self, param: Tensor) -> None:
        if not self.is_exchanging and self._begins is not None:
            self._begins()
        self._reached.add(id(param))

    def _final(self, slot: Slot, param: Tensor) -> None:
        self._announce(param)
        if self.is_exchanging and slot.arrived:
            raise second_gradient(
                slot.name, "Pass static_graph=True, or use_reentrant=False where the model is checkpointed."
            )
        fill([slot], self._weight)
        if not self.is_exchanging:
            return
        slot.arrived = True
        if self._seen is not None:
            self._seen.append(slot.index)
        slot.filling.num_missing -= 1
        if self._works:
            self._works[-1].done()  # asking moves it forward
        if not slot.filling.num_missing:
            self._send_full()

    # From gradients to aggregates.

    def prepare(self, weight: float | None = None) -> None:
        """Announce the last backward pass before an update: its gradients, times `weight`, are exchanged."""
        if self.is_early:
            for filling in self._fillings:
                filling.num_missing = len(filling.slots)
            if self.piggyback is not None:
                self._fillings[-1].num_missing += 1  # until `complete`
            for slot in self._slots:
                slot.arrived = False
        self.linear.begin()
        self._reached.clear()
        self._next = 0
        self._weight = None if weight is None else factor_of(weight)
        self.is_exchanging = True

    def complete(self) -> None:
        """Send the remaining buckets: backward is over. Without `prepare`, a worker without samples sends zeros."""
        without_samples = not self.is_exchanging
        if without_samples:
            self.prepare(weight=0.0)
        left = self._fillings[self._next :]
        absent = fill([slot for filling in left for slot in filling.slots if not slot.arrived], self._weight)
        if dropped := [
            slot for slot in self._slots if slot.param.grad is None and id(slot.param) in self._reached
        ]:
            refuse_dropped(self._group, _names(dropped), len(self._slots))
        if absent and self._options.unused == "refuse" and not without_samples:
            refuse_unused(self._group, _names(absent), len(self._slots))
        for filling in left:
            filling.num_missing = 0
        self._send_full()
        self.is_exchanging = False
        self._weight = None
        self.linear.end()
        present: list[bool] | None = None
        if self._options.unused == "zero":
            lacking = {slot.index for slot in absent}
            present = present_somewhere(self._group, [slot.index not in lacking for slot in self._slots])
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

    def abandon(self) -> None:
        """Forget the announced pass: it has failed, here and on all other workers. Wait for what is being sent."""
        self.is_exchanging, self._weight = False, None
        self.linear.end()
        for work in self._works:
            work.wait()
        self._works.clear()
        self._seen = None if self._seen is None else []

    def write_to_slots(self, model: nn.Module) -> None:
        """Have large linear layers compute their weights' gradients in the slots, where no copy is needed then."""
        if self._options.once and self._options.final_in_backward:
            large = [slot for slot in self._slots if slot.param.nbytes >= MOVED_BYTES]
            self.linear = LinearGradients(model, large)

    def remove(self) -> None:
        """Remove the hooks from the parameters."""
        for remove in self._removers:
            remove()

    def _send_full(self) -> None:
        """Send all buckets that are full and whose turn it is."""
        while self._next < len(self._fillings) and not self._fillings[self._next].num_missing:
            bucket = self._fillings[self._next].bucket
            self._next += 1
            self._works.append(self._send(bucket))

    def _follow_rank_0(self) -> None:
        """Plan again, in the order in which gradients became final on rank 0, once it has had any."""
        seen = self._seen or []
        rest = [index for index in self._order if index not in set(seen)]
        message = torch.tensor([bool(seen), *seen, *rest])
        self._group.broadcast(message).wait()
        known, *order = message.tolist()
        self._seen = None if known else []
        if known and order != self._order:
            held = [(slot, slot.view.clone()) for slot in self._slots if slot.param.grad is slot.view]
            self._order = order
            self._cut()
            for slot, gradient in held:
                slot.view.copy_(gradient)
                slot.param.grad = slot.view


def _names(slots: Iterable[Slot]) -> list[str]:
    return [slot.name for slot in sorted(slots, key=lambda slot: slot.index)]
