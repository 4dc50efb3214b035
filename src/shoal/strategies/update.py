"""The update at the end of every step: clipping, learning rate, optimizer."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,  # pyright: ignore[reportPrivateUsage]
    _global_optimizer_pre_hooks,  # pyright: ignore[reportPrivateUsage]
)

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.events.spans import SpanRecorder
from shoal.optim.compact.optimizer import Compact, Extent, Storage
from shoal.optim.elementwise import Elementwise
from shoal.optim.over import build_over, groups_of, regroup
from shoal.prune.masks import WeightMasks
from shoal.strategies.norms import chunk_norms, clip, global_norm
from shoal.strategies.pieces.piece import Piece, Place
from shoal.strategies.pieces.state import PlaceOf, load_optimizer, optimizer_pieces

MakeOptimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
"""Builds the optimizer over given tensors: a sync may hold only a part of the parameters."""


_ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adagrad,
    torch.optim.RMSprop,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.ASGD,
    torch.optim.Rprop,
)


def is_elementwise(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer updates each element from its own gradient and state only, so that slices can be updated.

    Our optimizers and some of torch's do so; a user's own declares `elementwise = True`.
    """
    return bool(getattr(optimizer, "elementwise", False)) or type(optimizer) in _ELEMENTWISE


def check_elementwise(optimizer: torch.optim.Optimizer, otherwise: str) -> None:
    """Refuse an optimizer whose parameters cannot be divided among workers; `otherwise` is what takes it."""
    if not is_elementwise(optimizer):
        raise ConfigError(
            f"{type(optimizer).__name__} is not known to update each element on its own, so its parameters cannot be "
            "divided among workers",
            f"Use {otherwise}, or declare `elementwise = True` in the optimizer's class.",
        )


def updates_alone(optimizer: torch.optim.Optimizer) -> bool:
    """Whether one step of all parameters equals a step of each alone: the optimizer counts steps for each parameter."""
    return isinstance(optimizer, Elementwise | Compact) or type(optimizer) in _ELEMENTWISE


def bare_step(optimizer: torch.optim.Optimizer) -> Callable[..., object]:
    """The step of an optimizer; of our own without torch's wrapper, where that has nothing to do.

    It calls hooks, and records the step for torch's profiler: a twentieth of a step of a small model. A step that was
    replaced in this optimizer, by a schedule or by `shoal.zero`, is called as it is.
    """
    wrapped: Any = type(optimizer).step
    is_ours = isinstance(optimizer, Elementwise) and getattr(wrapped, "hooked", False)  # torch's own mark
    hooks: Any = optimizer
    if (
        not is_ours
        or "step" in vars(optimizer)
        or hooks._optimizer_step_pre_hooks
        or hooks._optimizer_step_post_hooks
        or _global_optimizer_pre_hooks
        or _global_optimizer_post_hooks
        or profiler._is_profiler_enabled  # pyright: ignore[reportPrivateUsage]
    ):
        return optimizer.step
    return partial(wrapped.__wrapped__, optimizer)


class StateKeeper(Protocol):
    """Keeps the state of an optimizer in memory of its choice."""

    def step(self) -> None:
        """Step the optimizer."""
        ...

    def settle(self) -> None:
        """Return when the state can be read."""
        ...

    def load(self, params: Mapping[str, Tensor], place_of: PlaceOf, saved: Mapping[str, Tensor]) -> None:
        """Load the parts of a saved state that belong to these parameters."""
        ...


ParameterGroups = tuple[Mapping[str, int], int]
"""The number of each parameter's group, by its name, and how many groups there are."""
MakeKeeper = Callable[[torch.optim.Optimizer, dict[str, Tensor], MakeOptimizer], StateKeeper]
"""Builds the keeper of an optimizer, given the tensors that it updates and how it was built."""


class Updated(Protocol):
    """The tensors that an update changes: a layout's parameters, or one worker's slices of them."""

    params: dict[str, Tensor]
    span: SpanRecorder
    sharded_over: Sequence[Group]
    repeated: Collection[str]
    zero: Tensor

    def place_of(self, name: str) -> Place:
        """The place of a tensor in the whole parameter."""
        ...

    def all_norms(self, norms: Mapping[str, Tensor]) -> Tensor:
        """The norms of all chunks in their order, given the norms of the tensors here."""
        ...


class Update:
    """Clips the gradients by their norm over all parameters (`--clip-norm`), and steps the optimizer.

    With masks (`--prune`), pruned weights have no gradient and stay zero.
    """

    def __init__(
        self,
        layout: Updated,
        make_optimizer: MakeOptimizer,
        clip_norm: float | None = None,
        keeper: MakeKeeper | None = None,
        masks: WeightMasks | None = None,
        storage: Storage | None = None,
        groups: ParameterGroups | None = None,
    ) -> None:
        """`storage` is how parameters and state are stored between steps; None: as they are.

        `groups` are the groups of the whole parameters, if the layout's are slices.
        """
        self._layout = layout
        self._storage = storage
        self._masks = masks
        self._make_optimizer = make_optimizer
        # A worker that owns no slice of a small model updates nothing, but an optimizer needs a tensor.
        optimizer = build_over(make_optimizer, [*layout.params.values()] or [torch.zeros(1)])
        if groups is not None:
            regroup(optimizer, layout.params, *groups)
        if storage is not None and layout.params:
            extents: dict[int, Extent] = {}
            for name, param in layout.params.items():
                place = layout.place_of(name)
                # A box counts its own elements from 0.
                start = place.start if isinstance(place.start, int) else 0
                extents[id(param)] = Extent(name, start, math.prod(place.shape))
            optimizer = Compact(optimizer, storage, extents)
        self.optimizer = optimizer
        self._keeper: StateKeeper | None = None
        if keeper is not None and layout.params:
            self._keeper = keeper(optimizer, layout.params, make_optimizer)
        self.clip_norm = clip_norm
        """The largest norm of a gradient (`--clip-norm`); None: any."""
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        self.base_lr = next((rate for rate in rates if rate), 0.0)
        """The learning rate that the optimizer was built with: of its first group with a rate above 0."""
        # A user's optimizer may have several rates: they keep their ratios.
        self._lr_ratios = [rate / self.base_lr if self.base_lr else 1.0 for rate in rates]

    def check_divisible(self, otherwise: str = "--strategy ddp") -> None:
        """Refuse an optimizer whose parameters cannot be divided among workers; `otherwise` is what takes it."""
        check_elementwise(self.optimizer, otherwise)

    def over(self, slices: Updated, keeper: MakeKeeper | None = None) -> "Update":
        """The same update of other tensors: of the slices that a worker owns. `keeper` keeps the optimizer's state."""
        self.check_divisible()
        params, size = self._layout.params, len(self.optimizer.param_groups)
        number_of = groups_of(self.optimizer, params)
        is_one = size == 1 and len(number_of) == len(params)
        return self.of(slices, keeper, None if is_one else (number_of, size))

    def of(
        self, tensors: Updated, keeper: MakeKeeper | None = None, groups: ParameterGroups | None = None
    ) -> "Update":
        """The same update of other tensors; without `groups` they are whole, as in another copy of the model."""
        return Update(
            tensors, self._make_optimizer, self.clip_norm, keeper, storage=self._storage, groups=groups
        )

    @property
    def has_known_state(self) -> bool:
        """Whether the optimizer is one of ours, as it is: the names and shapes of its state are known beforehand."""
        return isinstance(self.optimizer, Elementwise)

    @property
    def can_be_masked(self) -> bool:
        """Whether `unless` is supported: the device can skip the update without the host."""
        return isinstance(self.optimizer, Elementwise) and self.optimizer.fast and self._keeper is None

    def __call__(self, lr: float, unless: Tensor | None = None, scale: Tensor | float | None = None) -> None:
        """Make the update; skip it on the device if `unless`, a tensor on the device, is 1.

        `scale` is what gradients still lack: of a loss that counts, the number of samples / the count.
        """
        layout = self._layout
        if scale is not None:
            for param in layout.params.values():
                if param.grad is not None:
                    param.grad.mul_(scale)
        if self._masks is not None:
            self._masks.before_update()
        if self.clip_norm is not None:
            with layout.span("clip", "compute"):
                self.clip_gradients(self.clip_norm)
        if layout.params:
            with layout.span("update", "compute"):
                self.without_clipping(lr, unless)

    def clip_gradients(self, largest: float) -> Tensor:
        """Clip the gradients by their norm over all parameters, wherever these are; returns the norm.

        A collective, if the parameters are divided among workers.
        """
        layout = self._layout
        grads = {name: param.grad for name, param in layout.params.items() if param.grad is not None}
        norms = {name: chunk_norms(grad) for name, grad in grads.items() if name not in layout.repeated}
        norm = global_norm(layout.all_norms(norms), layout.sharded_over)
        clip(grads.values(), norm, largest)
        return norm

    def step_only(self, params: Sequence[Tensor], lr: float) -> None:
        """Update these parameters alone, without clipping; only by an optimizer of shoal."""
        assert isinstance(self.optimizer, Elementwise | Compact)  # the settings refuse others
        self._set_lr(lr)
        self.optimizer.step(only=params)

    def _set_lr(self, lr: float) -> None:
        for group, ratio in zip(self.optimizer.param_groups, self._lr_ratios, strict=True):
            group["lr"] = lr * ratio

    def without_clipping(self, lr: float | None = None, unless: Tensor | None = None) -> None:
        """Step the optimizer, with its own learning rates if `lr` is None; for a caller that records its own span."""
        if lr is not None:
            self._set_lr(lr)
        if self._keeper is not None:
            self._keeper.step()
        elif unless is None:
            bare_step(self.optimizer)()
        else:
            assert isinstance(self.optimizer, Elementwise)
            bare_step(self.optimizer)(found_inf=unless)
        if self._masks is not None:
            self._masks.after_update()

    def pieces(self) -> list[Piece]:
        """The optimizer's state and the masks, each tensor in the place of its parameter."""
        if self._keeper is not None:
            self._keeper.settle()
        place_of = self._layout.place_of
        masks = self._masks.state() if self._masks is not None else {}
        return [
            *optimizer_pieces(self._layout.params, place_of, self.optimizer),
            *(Piece(key, tensor, place_of(name)) for key, (name, tensor) in masks.items()),
        ]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Load the parts of a saved optimizer state that belong to the parameters here, and the masks."""
        if self._masks is not None:
            self._masks.load(saved)
        if self._keeper is not None:
            self._keeper.load(self._layout.params, self._layout.place_of, saved)
        elif self._layout.params:
            load_optimizer(self._layout.params, self._layout.place_of, self.optimizer, saved)
