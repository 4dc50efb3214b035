"""The update at the end of every step: clipping, learning rate, optimizer."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.events.spans import SpanRecorder
from shoal.optim.elementwise import Elementwise
from shoal.parallel.piece import Piece, Place
from shoal.parallel.state import load_optimizer, optimizer_pieces
from shoal.parallel.step import clip_by_norm

MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
"""Builds the optimizer over given tensors: a sync may hold only a part of the parameters."""


class ParameterOwner(Protocol):
    """What holds the parameters of an update: a layout, or a stage of one."""

    params: dict[str, Tensor]
    """This worker's part of each parameter, under the names of the whole model."""
    span: SpanRecorder
    sharded_over: Sequence[Group]
    """The groups that divide the parameters."""
    repeated: Collection[str]
    """Parameters that another worker counts in norms."""

    def place_of(self, name: str) -> Place:
        """The place of this worker's part of a parameter in the whole."""
        ...


class Update:
    """Clips the gradients by their norm over all parameters (`--clip-norm`), and steps the optimizer."""

    def __init__(
        self, layout: ParameterOwner, make_optimizer: MakeOptimizer, clip_norm: float | None = None
    ) -> None:
        self._layout = layout
        self._make_optimizer = make_optimizer
        self._optimizer = make_optimizer(layout.params.values())
        self._clip_norm = clip_norm
        groups = self._optimizer.param_groups
        self.base_lr: float = groups[0]["lr"]
        """The learning rate that the optimizer was built with."""
        # A user's optimizer may have several rates: they keep their ratio to the first.
        self._lr_ratios = [group["lr"] / self.base_lr for group in groups]

    def over(self, owner: ParameterOwner) -> "Update":
        """The same update of another owner's parameters, with a fresh optimizer."""
        return Update(owner, self._make_optimizer, self._clip_norm)

    @property
    def can_be_masked(self) -> bool:
        """Whether `unless` is supported: the device can skip the update without the host."""
        return isinstance(self._optimizer, Elementwise) and self._optimizer.fast

    def __call__(self, lr: float, unless: Tensor | None = None) -> None:
        """Make the update; skip it on the device if `unless`, a tensor on the device, is 1."""
        span, optimizer = self._layout.span, self._optimizer
        if self._clip_norm is not None:
            with span("clip", "compute"):
                layout = self._layout
                grads = {name: p.grad for name, p in layout.params.items() if p.grad is not None}
                repeated = [grads.pop(name) for name in layout.repeated if name in grads]
                clip_by_norm(grads.values(), self._clip_norm, layout.sharded_over, repeated)
        for group, ratio in zip(optimizer.param_groups, self._lr_ratios, strict=True):
            group["lr"] = lr * ratio
        with span("update", "compute"):
            if unless is None:
                optimizer.step()
            else:
                assert isinstance(optimizer, Elementwise)
                optimizer.step(found_inf=unless)

    def pieces(self) -> list[Piece]:
        """The optimizer's state, each tensor in the place of its parameter."""
        return optimizer_pieces(self._layout.params, self._layout.place_of, self._optimizer)

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the parts of a saved optimizer state that belong to the parameters here."""
        load_optimizer(self._layout.params, self._layout.place_of, self._optimizer, saved)
