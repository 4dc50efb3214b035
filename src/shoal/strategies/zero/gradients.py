"""Gradients summed to their owners: each unit is reduce-scattered when its gradients are final, and then freed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.strategies.buckets.gradient_slots import Factor, copy_gradients, second_gradient
from shoal.strategies.buckets.plan import Kind
from shoal.strategies.gradient_engine import OnFinal
from shoal.strategies.zero.units import Unit


class Outbox:
    """Memory for the gradients of one unit at a time, while they are summed."""

    def __init__(self, memory: Tensor, most: int) -> None:
        self.memory = memory
        self.work: Work | None = None
        self.adds_to: Tensor | None = None
        """The owner's sum of earlier passes."""
        self._most = most
        self._received: Tensor | None = None

    def received(self, numel: int) -> Tensor:
        """Memory for this worker's piece of a sum that is added to an earlier one."""
        if self._received is None:
            self._received = self.memory.new_empty(self._most)
        return self._received[:numel]

    def wait(self) -> None:
        """Return when the sum is in place and the memory may be filled again."""
        if self.work is not None:
            self.work.wait()
            self.work = None
            if self.adds_to is not None:
                self.adds_to.add_(self.received(self.adds_to.numel()))
                self.adds_to = None


class UnitSlots:
    """A unit's parameters, and where their gradients go."""

    def __init__(self, unit: Unit, params: Mapping[str, Tensor], outbox: Outbox, keeps_sum: bool) -> None:
        memory = outbox.memory[: unit.numel]
        self.unit, self.outbox, self.memory = unit, outbox, memory
        self.params = {name: params[name] for name in unit.shapes}
        self.views, self.gaps = unit.views(memory), unit.gaps(memory)
        self.missing: set[str] = set()
        self.sum = torch.zeros(unit.piece, dtype=unit.kind.dtype, device=unit.kind.device)
        """This worker's piece of the sum over all workers and passes."""
        self.owned: list[tuple[Tensor, Tensor]] = []
        """The slices that this worker updates, each with its view of the sum: their gradient."""
        self.is_first = True
        """Whether the next pass is the first of a step, whose sums replace the last step's."""
        self._storage = self.sum.untyped_storage()
        self._num_bytes = self._storage.nbytes()
        self._keeps_sum = keeps_sum

    def restart(self) -> None:
        """Start a step: the next sum replaces this one, whose memory is free until then unless it is kept."""
        self.is_first = True
        if not self._keeps_sum and self._storage.nbytes():
            for owned, _ in self.owned:
                owned.grad = None
            self._storage.resize_(0)

    def have_sum(self) -> None:
        """Have memory for the sum."""
        if not self._storage.nbytes():
            self._storage.resize_(self._num_bytes)
            for owned, view in self.owned:
                owned.grad = view


@final
class OwnedGradients:
    """Sums gradients over the workers; each worker has its pieces of the sums.

    Phase 1, `begin`: a backward pass starts. Where `early`, a unit whose gradients are all final is copied to memory of
    the group, its `param.grad` is dropped, and its reduce-scatter starts; units go in reverse order on every worker.
    Phase 2, `complete`: the pass is over; the remaining units follow. A worker without a pass sends zeros.

    `look` is given each unit's gradients before they are summed, `left` each unit whose gradients are final.

    Two units at most are under way: a third waits for the first. Memory: the pieces, and twice the largest unit. Unless
    `keeps_sums`, the pieces exist from the first send to `restart`: while backward produces whole gradients, there are
    none. Passes after `restart` add to each other.
    """

    def __init__(
        self,
        group: Group,
        units: Sequence[Unit],
        params: Mapping[str, Tensor],
        on_final: OnFinal,
        early: bool,
        look: Callable[[Tensor], None],
        left: Callable[[Unit], None] | None = None,
        keeps_sums: bool = True,
    ) -> None:
        self._group = group
        self._look, self._left = look, left
        self.present: set[str] = set()
        """Parameters that had a gradient here since `restart`."""
        boxes: dict[Kind, Iterator[Outbox]] = {}
        for kind in dict.fromkeys(unit.kind for unit in units):
            alike = [unit for unit in units if unit.kind == kind]
            largest = max(alike, key=lambda unit: unit.numel)
            # Units of one kind take turns.
            boxes[kind] = cycle([Outbox(group.empty(largest.numel, *kind), largest.piece) for _ in alike[:2]])
        self.slots = [UnitSlots(unit, params, next(boxes[unit.kind]), keeps_sums) for unit in units]
        self._order = [*reversed(self.slots)]
        self._next = len(self._order)
        self.is_running = self._is_held = False
        """Whether a pass has begun and is not complete; whether its gradients stay in `param.grad`."""
        self._weight: Factor | None = None
        for slots in self.slots if early else ():
            for name, param in slots.params.items():
                on_final(param, partial(self._final, slots, name))

    def restart(self) -> None:
        """Start a step: sums of earlier passes are dropped."""
        self.present.clear()
        for slots in self.slots:
            slots.restart()

    def begin(self, weight: Factor | None = None) -> None:
        """A backward pass starts, whose gradients, times the weight, are summed."""
        self._next, self.is_running, self._weight = 0, True, weight
        self._expect_all()

    def hold(self) -> None:
        """A backward pass starts whose gradients stay in `param.grad`; `left` is still called."""
        self._is_held = True
        self._expect_all()

    def _expect_all(self) -> None:
        for slots in self.slots:
            slots.missing = {*slots.params}

    def _final(self, slots: UnitSlots, name: str, param: Tensor) -> None:
        del param
        if not self.is_running and not self._is_held:
            return
        if name in slots.missing:
            slots.missing.remove(name)
            if not slots.missing:
                if self._left is not None:
                    self._left(slots.unit)
                if self.is_running:
                    self._send_final()
        elif self.is_running:
            raise second_gradient(name, "Use use_reentrant=False where the model is checkpointed.")

    def _send_final(self) -> None:
        """Send all units that are final and whose turn it is."""
        while self._next < len(self._order) and not self._order[self._next].missing:
            self._send(self._order[self._next])
            self._next += 1

    def complete(self) -> None:
        """The pass is over: send the other units, and wait until this worker has its sums."""
        if not self.is_running:
            self.begin()
        for slots in self._order[self._next :]:
            slots.missing.clear()
        self._send_final()
        for slots in self.slots:
            slots.outbox.wait()
        self.is_running, self._weight = False, None

    def abandon(self) -> None:
        """Forget a pass that has failed, here and on all other workers; wait for what is being sent."""
        for slots in self.slots:
            slots.outbox.wait()
        self.is_running, self._weight = False, None
        self.restart()

    def _send(self, slots: UnitSlots) -> None:
        slots.outbox.wait()
        absent = copy_gradients(slots.params, slots.views, self._weight)
        self.present.update(slots.params.keys() - absent)
        for param in slots.params.values():
            param.grad = None
        if slots.gaps:
            torch._foreach_zero_(slots.gaps)  # pyright: ignore[reportPrivateUsage]
        self._look(slots.memory)
        slots.have_sum()
        box, total = slots.outbox, slots.sum
        if not slots.is_first:
            box.adds_to, total = total, box.received(total.numel())
        slots.is_first = False
        box.work = self._group.reduce_scatter(total, slots.memory)
