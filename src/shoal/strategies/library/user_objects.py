"""A user's model and optimizer once the training is set up: calls that are redirected, changes that are refused."""

import functools
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MethodType
from typing import Any, final

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError


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
            raise ConfigError(
                f"{type(self).__name__}.step(closure) is not supported: the optimizer has a part of the parameters",
                "Compute the loss and its gradients before the step, and call step() without arguments.",
            )
        return step_of_all()

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

        @functools.wraps(call)
        def called(*args: Any, **kwargs: Any) -> Any:
            with with_slices():
                return call(*args, **kwargs)

        return called

    list_all(wholes)
    optimizer.state_dict = of_slices(optimizer.state_dict)
    optimizer.load_state_dict = of_slices(optimizer.load_state_dict)
    return with_slices


@final
class SetUp:
    """A model as it was when its training was set up; later changes that the workers would not notice are refused."""

    def __init__(self, model: nn.Module, how: str, ignored: Collection[str] = ()) -> None:
        """`how` says how to set the training up again."""
        self._how = how
        self._frozen = {
            name: param
            for name, param in model.named_parameters()
            if not param.requires_grad and name not in ignored
        }
        self._addresses: dict[str, tuple[nn.Parameter, int]] = {}

    def fix_memory(self, params: Mapping[str, nn.Parameter]) -> None:
        """From now on these parameters have the memory in which they are updated."""
        self._addresses = {name: (param, param.data_ptr()) for name, param in params.items()}

    def check(self) -> None:
        """Raise a ConfigError that names a parameter that was unfrozen, or has been moved to other memory."""
        for name, param in self._frozen.items():
            if param.requires_grad:
                raise ConfigError(
                    f"parameter '{name}' was frozen when the training was set up, and now requires a gradient: the "
                    "workers would not exchange it",
                    f"Unfreeze it before that, or set up the training again: {self._how}.",
                )
        for name, (param, address) in self._addresses.items():
            if param.data_ptr() != address:
                raise ConfigError(
                    f"parameter '{name}' has other memory than when the training was set up: updates would not reach "
                    "the model",
                    "Call model.to(…), model.half() and the like before that, and change weights in place: "
                    "param.data.copy_(…).",
                )
