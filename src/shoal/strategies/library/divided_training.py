"""A user's model whose training the workers divide: the base of `shoal.OneCopy` and of the objects of `shoal.zero`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from types import MethodType
from typing import Any, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models.common import check_has_values
from shoal.strategies.buckets.buffer_sync import buffer_sync_of
from shoal.strategies.library.backward_pass import BackwardPass
from shoal.strategies.library.divided_gradients import ShownGradients
from shoal.strategies.library.optimizer_afterwards import expect_optimizer, refuse_closure, update_by
from shoal.strategies.library.set_up import SetUp, group_of, make_equal, shared_state
from shoal.strategies.norms import in_order
from shoal.strategies.pieces.piece import Piece, Place
from shoal.strategies.pieces.slices import Slices
from shoal.strategies.pieces.state import model_pieces, names_of, whole_place
from shoal.strategies.update import MakeKeeper, MakeOptimizer, Update


@final
class Trained:
    """A model as `Slices` and `Shards` take it, with the names of `Layout`: no parameter is divided yet."""

    def __init__(self, model: nn.Module, params: dict[str, Tensor], rank: int = 0) -> None:
        self.model, self.params = model, params
        self.trained_names = names_of(model.state_dict(keep_vars=True), params)
        self.all_names: Collection[str] = ()
        self._rank = rank
        self.span = SpanRecorder(HostClock())
        self.sharded_over: Sequence[Group] = ()
        self.repeated: Collection[str] = ()
        first = next(iter(params.values())).detach()
        self.zero = first.new_zeros((), dtype=first.dtype.to_real())

    def place_of(self, name: str) -> Place:
        """The whole parameter."""
        return Place.whole(self.params[name])

    def all_norms(self, norms: Mapping[str, Tensor]) -> Tensor:
        """The norms as they are."""
        return in_order(norms)

    def pieces(self) -> list[Piece]:
        """Parameters and buffers, of which every worker has a copy."""
        return model_pieces(self.model.state_dict(), partial(whole_place, replica=self._rank))


class DividedTraining(ABC):
    """A model, and the `Update` of the slices that this worker owns: the same that a run uses.

    Between backward passes `param.grad` is a `DividedGradient`. A step is: sum the gradients to their owners, clip,
    update the slices, publish the weights.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: MakeOptimizer | None,
        group: Group | None,
        check: Callable[[Group, Mapping[str, nn.Parameter]], None],
        how: str,
        unfilled: Collection[str] = (),
    ) -> None:
        """Make the workers' models equal. `check` refuses groups; `how` says how to set the training up again.

        Without `make_optimizer`, the program makes an optimizer from the model's parameters later. `unfilled` tensors
        get the same values on all workers later.
        """
        check_has_values(model)
        self.model = model
        self._trained = {name: param for name, param in model.named_parameters() if param.requires_grad}
        if not self._trained:
            raise ConfigError("the model has no parameter to train")
        self.group = group_of(group, self._trained)
        check(self.group, self._trained)
        self._layout = Trained(model, dict(self._trained), self.group.rank)
        self._of_wholes: Update | None = None
        self._of_slices: Update | None = None
        self._replaced: Sequence[Tensor] = ()
        """Parameters that the model had before this training gave it others."""
        if make_optimizer is not None:
            self._of_wholes = Update(self._layout, make_optimizer)
            self._of_wholes.check_divisible(otherwise="shoal.DistributedDataParallel")
        self._set_up = SetUp(model, how)
        for name, param in self._trained.items():
            if name not in unfilled:
                param.data = param.data.contiguous()
        make_equal(self.group, shared_state(model), unfilled)
        self._buffers = buffer_sync_of(self.group, model)
        self._pass = BackwardPass(self._end_pass, self._abandon_pass)
        self._reached: set[str] = set()
        """Parameters that had a gradient here since the last step, if the program has not dropped it since."""

    def _divide(self, slices: Slices, keeper: MakeKeeper | None = None) -> None:
        """From now on, train these slices here. `keeper` keeps the optimizer's state."""
        self._slices = slices
        self._shown = ShownGradients(self.group, self._layout.params, slices, self._sum)
        redirect_zero_grad(self.model, self.zero_grad)
        self.model.register_forward_pre_hook(lambda module, args: self._pass.forget_failed())
        for name, param in self._trained.items():
            param.register_hook(partial(self._reach, name))
        if self._of_wholes is None:
            expect_optimizer(self._meet)
        else:
            wholes = [group["params"] for group in self._of_wholes.optimizer.param_groups]
            self._use(self._of_wholes.over(slices, keeper), wholes)

    def _use(self, update: Update, wholes: Sequence[list[Tensor]]) -> None:
        """Train by an update of the slices, whose optimizer shows whole parameters."""
        self._of_slices = update
        self._with_slices = show_wholes(update.optimizer, wholes)
        self._own_step = redirect_step(update.optimizer, self.step)
        redirect_zero_grad(update.optimizer, self.zero_grad)

    def _adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Have an optimizer that was made from the model's parameters update this worker's slices."""
        self._refuse_earlier(optimizer)
        if self._of_slices is None:
            wholes = [group["params"] for group in optimizer.param_groups]
            self._use(update_by(optimizer, self.model, self._trained, self._slices), wholes)
        elif self._of_slices.optimizer is not optimizer:
            raise ConfigError(
                f"the training has an optimizer ({type(self._of_slices.optimizer).__name__}), and another one "
                f"({type(optimizer).__name__}) has parameters of the same model",
                "Use one optimizer with several parameter groups.",
            )

    def _meet(self, optimizer: torch.optim.Optimizer, has_closure: bool) -> None:
        """An optimizer is about to step: if it has parameters of this model, this is the training's first step."""
        if self._of_slices is not None and self._of_slices.optimizer is optimizer:
            return
        self._refuse_earlier(optimizer)
        if _has_one_of(optimizer, self._trained.values()):
            if has_closure:
                raise refuse_closure(optimizer)
            self._adopt(optimizer)
            self.step()  # which drops the gradients: the step that called this has nothing left to do

    def _refuse_earlier(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuse an optimizer of the parameters that a model had on the meta device."""
        if _has_one_of(optimizer, self._replaced):
            raise ConfigError(
                f"{type(optimizer).__name__} was made before shoal.zero, from parameters that the model no longer has",
                "Make it afterwards, from model.parameters().",
            )

    @property
    def _update(self) -> Update:
        if self._of_slices is None:
            raise ConfigError(
                "the training has no optimizer yet",
                "Make one from model.parameters() and call its step(); or pass make_optimizer.",
            )
        return self._of_slices

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of this worker's slices, for learning-rate schedules. Its `step()` is `step()` of this."""
        return self._update.optimizer

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The model's outputs: the same as calling the model."""
        return self.model(*inputs, **options)

    def _reach(self, name: str, gradient: Tensor) -> None:
        """A gradient has come, and autograd is about to add it to `param.grad`."""
        del gradient
        self._begin_pass()
        self._reached.add(name)

    def _begin_pass(self, outermost: bool = False) -> None:
        self._pass.begin(outermost)
        self._hide()

    @abstractmethod
    def _end_pass(self) -> None: ...

    def _abandon_pass(self) -> None:  # noqa: B027 (not every object has to)
        """The pass has failed: the next one starts a step afresh."""

    def _hide(self) -> list[str]:
        """Have each worker's own gradients in `param.grad`; returns parameters whose gradients the program dropped."""
        dropped = self._shown.hide()
        self._reached.difference_update(dropped)
        return dropped

    @abstractmethod
    def _sum(self) -> None:
        """Sum all gradients that are here over the workers."""

    @abstractmethod
    def step(self) -> object:
        """Update the weights. A collective: every worker calls it after its last backward pass of a step."""

    @contextmanager
    def sums_shown(self) -> Generator[None]:
        """Show the summed gradients in `param.grad` to a program that looks on: as `_update_slices` begins."""
        self._shown.show(has_sums=True)
        try:
            yield
        finally:
            self._hide()

    def _update_slices(self, clip_norm: float | None) -> Tensor | None:
        """Clip, if a norm is given, and update: all workers have summed gradients, and none reads weights any more."""
        update = self._update
        norm = None if clip_norm is None else update.clip_gradients(clip_norm)
        with self._own_step(), self._with_slices():
            update.without_clipping()
        return norm

    def zero_grad(self) -> None:
        """Drop the gradients of all passes since the last step. `step` does so, too."""
        self._reached.clear()
        self._shown.drop()


def _has_one_of(optimizer: torch.optim.Optimizer, params: Iterable[Tensor]) -> bool:
    listed = {id(param) for group in optimizer.param_groups for param in group["params"]}
    return not listed.isdisjoint(map(id, params))


def redirect_zero_grad(owner: nn.Module | torch.optim.Optimizer, forget: Callable[[], None]) -> None:
    """Have `owner.zero_grad()` call `forget`.

    Torch's own would set `grad` of an optimizer's slices to None. It is a view of sums that are made elsewhere, so the
    optimizer would skip these slices from then on. And torch's would find nothing to drop in a model whose gradients
    have been summed to their owners.
    """

    def zero_grad(set_to_none: bool = True) -> None:
        del set_to_none  # the next gradients replace dropped ones in any case
        forget()

    owner.zero_grad = zero_grad


def redirect_step(
    optimizer: torch.optim.Optimizer, step_of_all: Callable[[], object]
) -> Callable[[], AbstractContextManager[None]]:
    """Have `optimizer.step()` call `step_of_all`; inside the returned context it is the optimizer's own step.

    The optimizer's own step alone would update this worker's slices with gradients that are not summed yet, or with
    those of the last step, and no other worker would see it. Learning-rate schedulers wrap `step` of an optimizer, so
    it stays a method, and the step of all workers still calls it.
    """
    own, is_inside = optimizer.step, False

    def step(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        if is_inside:
            return own()
        if closure is not None:
            raise refuse_closure(self)
        return step_of_all()

    if hasattr(own, "_wrapped_by_lr_sched"):  # a schedule that was made before warns where its mark is gone
        vars(step).update(_wrapped_by_lr_sched=True)

    @contextmanager
    def own_step() -> Generator[None]:
        nonlocal is_inside
        is_inside = True
        try:
            yield
        finally:
            is_inside = False

    optimizer.step = MethodType(step, optimizer)
    return own_step


def show_wholes(
    optimizer: torch.optim.Optimizer, wholes: Sequence[list[Tensor]]
) -> Callable[[], AbstractContextManager[None]]:
    """Have `optimizer.param_groups` list whole parameters, group by group; inside the returned context, the slices.

    Programs clip and unscale gradients through these lists. Slices differ among the workers, and have a part of a
    gradient each.
    """
    slices = [group["params"] for group in optimizer.param_groups]

    def list_all(params: Sequence[list[Tensor]]) -> None:
        for group, listed in zip(optimizer.param_groups, params, strict=False):
            group["params"] = listed

    @contextmanager
    def with_slices() -> Generator[None]:
        list_all(slices)
        try:
            yield
        finally:
            list_all(wholes)

    def of_slices(call: Callable[..., Any]) -> Callable[..., Any]:
        """A method that reads or loads the state of what the optimizer updates."""

        @wraps(call)
        def called(*args: Any, **kwargs: Any) -> Any:
            with with_slices():
                return call(*args, **kwargs)

        return called

    list_all(wholes)
    optimizer.state_dict = of_slices(optimizer.state_dict)
    optimizer.load_state_dict = of_slices(optimizer.load_state_dict)
    return with_slices
