"""The base of all syncs, and the parts that they are built from."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.data.dataset import Batch
from shoal.strategies.buckets.gradient_slots import ABSENT
from shoal.strategies.buckets.unused import present_somewhere
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.guard import Guard
from shoal.strategies.layout.layout import Layout
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.replicas.step_in_backward import StepInBackward
from shoal.strategies.strategy import Share, StepResult, Strategy, Sums, TrainingClock
from shoal.strategies.update import Update


@dataclass(frozen=True)
class SyncParts:
    """The parts of a sync."""

    layout: Layout
    update: Update
    group: Group
    """The data axis: workers that hold the same part of the model, each with its own share of the batch."""
    exchange: Exchange
    guard: Guard
    world: Group | None = None
    """All workers of the run and its servers, where there are any."""
    training_clock: TrainingClock = field(default_factory=TrainingClock)
    """The current step, for a sync that changes in the course of the training."""
    step_in_backward: bool = False
    """Whether parameters are updated during backward (`--memory.step_in_backward`)."""


class Sync(Strategy):
    """A strategy made of a layout, which holds the model, and an update of the layout's parameters.

    Its own step has no other replicas. With the layout `whole` it is `single`, the reference for every strategy: phase
    1, gradients, summed over the parts of the batch; phase 2, update.
    """

    def __init__(self, parts: SyncParts) -> None:
        self._layout, self._update = parts.layout, parts.update
        self._exchange, self._guard = parts.exchange, parts.guard
        self._group = self.copies = parts.group
        self.data_rank, self.data_size = parts.group.rank, parts.group.size
        self._steps_in_backward = parts.step_in_backward
        self._step_in_backward: StepInBackward | None = None

    def step(self, share: Share, lr: float) -> StepResult:
        """A step without other replicas. Workers that divide this one agree on bad numbers and stop signals."""
        layout = self._layout
        if layout.updates_inside:
            return self._step_of_many_updates(share, lr)
        if self._steps_in_backward:
            if self._step_in_backward is None:
                self._step_in_backward = StepInBackward(layout, self._update)
            return StepResult(self._step_in_backward(share, lr), share.stop_signal)
        loss = layout.gradients(share)
        guarded = layout.counter is not None or self._guard.loss_scale is not None
        if not layout.sharded_over and not guarded:
            self._update(lr)
            return StepResult(loss, share.stop_signal)
        self._look()
        verdict = self._guard.agree(loss, share)
        if verdict.may_update:
            self._update(lr, scale=verdict.scale)
        return StepResult(verdict.loss, verdict.stop_signal)

    def _step_of_many_updates(self, share: Share, lr: float) -> StepResult:
        """A step that updates after every micro-batch. Workers agree at its end: before, each is on another one.

        A worker whose gradients are not finite makes no more updates, and all stop at the end of the step.
        """

        def update() -> None:
            self._look()
            if self._guard.sees_finite:
                self._update.without_clipping(lr)

        verdict = self._guard.agree(self._layout.update_each(share, update), share)
        return StepResult(verdict.loss, verdict.stop_signal)

    def _look(self) -> None:
        """Have the guard measure the gradients."""
        grads = [param.grad for param in self._layout.params.values()]
        self._guard.look(*[grad for grad in grads if grad is not None])

    def _present_gradients(self) -> dict[str, Tensor]:
        """The gradients that exist; −0, which changes no sum, where only other workers' samples reached a parameter.

        A parameter that no worker's samples reached keeps no gradient at all, as on one machine, where the optimizer
        then skips it. So the workers first exchange which gradients exist.
        """
        params = self._layout.params
        present = present_somewhere(self._group, [param.grad is not None for param in params.values()])
        grads: dict[str, Tensor] = {}
        for (name, param), somewhere in zip(params.items(), present, strict=True):
            if somewhere:
                grads[name] = param.grad = (
                    torch.full_like(param, ABSENT) if param.grad is None else param.grad
                )
        return grads

    def evaluate(self, batch: Batch) -> Sums:
        """Loss, correct predictions and metrics on a batch."""
        return self._layout.evaluate(batch)

    def pieces(self) -> list[Piece]:
        """What layout, optimizer and exchange hold here. Each worker saves its own state of the exchange."""
        exchange = self._exchange.pieces()
        own = f"exchange.rank{self._group.rank}."
        return [
            *self._layout.pieces(),
            *self._update.pieces(),
            *(Piece.whole(own + key, tensor) for key, tensor in exchange.items()),
        ]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the parts that layout, optimizer and exchange hold here.

        With another exchange, or on a rank that has saved none, the state of the exchange starts fresh.
        """
        self._layout.load(saved)
        self._update.load(saved)
        own = f"exchange.rank{self._group.rank}."
        self._exchange.load({name.removeprefix(own): saved[name] for name in saved if name.startswith(own)})


def no_sync(parts: SyncParts, config: object) -> Sync:
    """The sync of a single replica, which has no settings."""
    del config
    return Sync(parts)
