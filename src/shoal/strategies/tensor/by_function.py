"""Division by function: a module that one worker computes alone, while the others compute theirs.

Two towers and what joins them, `scores = join(user_tower(x), item_tower(x))`::

    worker 0:   user tower ─┬─ broadcast ┐                 ┌ join ─ loss ─ backward of join ─ backward of user tower
    worker 1:   item tower ─┴─ broadcast ┘ (both at once)  └ join ─ loss ─ backward of join ─ backward of item tower

The output of such a module is a *promise*: a worker waits for it when something uses it, so it can compute a module of
its own before that. What follows is computed by all workers on the same numbers. So the worker of a module has the
gradient of its output without communication, and the backward passes run at once, too.

Costs one broadcast of the output per forward pass. Where the input of the module needs a gradient (it comes from
another layer that is trained), the backward pass broadcasts that gradient; there the others wait for it.
"""

from collections.abc import Sequence
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group, Work
from shoal.errors import ConfigError


def on_worker(module: nn.Module, group: Group, owner: int, name: str) -> nn.Module:
    """The module, computed by one worker of the group: itself there, a stand-in without parameters elsewhere."""
    if any(isinstance(each, nn.modules.dropout._DropoutNd) for each in module.modules()):  # pyright: ignore[reportPrivateUsage]
        raise ConfigError(
            f"the plan gives {name} to worker {owner}, but {name} has dropout: only this worker would draw random "
            "numbers, and the workers' random states would differ",
            f"Remove the dropout, or leave {name} out of the plan.",
        )
    if group.rank != owner:
        return Elsewhere(module, group, owner, name)
    module.register_forward_pre_hook(lambda _, inputs: tuple(_shared(each, group, owner) for each in inputs))
    module.register_forward_hook(lambda _, inputs, output: _published(output, group, name))
    return module


@final
class Elsewhere(nn.Module):
    """Stands for a module that another worker computes: receives its output. It has no parameters.

    The module itself, on torch's meta device (shapes without numbers), says what to receive.
    """

    def __init__(self, module: nn.Module, group: Group, owner: int, name: str) -> None:
        super().__init__()
        self._shapes = (module.to("meta").eval(),)  # in a tuple: not a child, so its parameters do not count
        self._group, self._owner, self._name = group, owner, name
        self._known: dict[tuple[Any, ...], tuple[torch.Size, torch.dtype]] = {}

    def forward(self, *inputs: Tensor) -> Tensor:
        """The output, when it is used."""
        key = tuple((each.shape, each.dtype) for each in inputs)
        if key not in self._known:
            with torch.no_grad():
                output = self._shapes[0](*(torch.empty_like(each, device="meta") for each in inputs))
            _check_tensor(output, self._name)
            self._known[key] = output.shape, output.dtype
        shape, dtype = self._known[key]
        received = torch.empty(shape, dtype=dtype, device=inputs[0].device)
        # Detached: autograd must not see the group write into it.
        work = self._group.broadcast(received.detach(), self._owner)
        needing = [each for each in inputs if each.requires_grad]
        if needing and torch.is_grad_enabled():
            received = cast(Tensor, _Received.apply(received, self._group, self._owner, *needing))
        return promised(received, work)

    def extra_repr(self) -> str:
        """Where it is."""
        return f"{self._name}, on worker {self._owner}"


def _published(output: Any, group: Group, name: str) -> Tensor:
    _check_tensor(output, name)
    if output.is_floating_point() and torch.is_autocast_enabled(output.device.type):
        output = output.float()  # the others see the module without autocast
    # Copied: what follows may change the output in place before it is sent.
    sent = output.detach().clone(memory_format=torch.contiguous_format)
    return promised(output, group.broadcast(sent, group.rank))


def _check_tensor(output: Any, name: str) -> None:
    if not isinstance(output, Tensor):
        raise ConfigError(
            f"the plan gives {name} to one worker, but it returns a {type(output).__name__}, expected one tensor"
        )


class Promised(Tensor):
    """A tensor that is being sent: the first operation that uses it waits."""

    work: Work

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Wait for all promised arguments, and go on with plain tensors."""
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            return func(
                *(_kept(each) for each in args), **{key: _kept(each) for key, each in (kwargs or {}).items()}
            )


def promised(tensor: Tensor, work: Work) -> Tensor:
    """The tensor, for which its users wait."""
    promise = tensor.as_subclass(Promised)
    promise.work = work
    return promise


def _kept(value: Any) -> Any:
    """A plain tensor for a promised one, also in lists, tuples and dicts."""
    if isinstance(value, Promised):
        value.work.wait()
        return value.as_subclass(Tensor)
    if isinstance(value, (list, tuple)):
        kept = [_kept(each) for each in cast(Sequence[Any], value)]
        return kept if isinstance(value, list) else tuple(kept)
    if isinstance(value, dict):
        return {key: _kept(each) for key, each in cast(dict[Any, Any], value).items()}
    return value


def _shared(value: Any, group: Group, owner: int) -> Any:
    """An input of the module, whose gradient all workers get from this one."""
    is_needed = isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled()
    return _Shared.apply(value, group, owner) if is_needed else value


class _Shared(torch.autograd.Function):
    """On the module's worker: sends the gradient of the input to the others."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: Group, owner: int) -> Tensor:
        ctx.group, ctx.owner = group, owner
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gradient = gradients[0].contiguous()
        ctx.group.broadcast(gradient, ctx.owner).wait()
        return gradient, None, None


class _Received(torch.autograd.Function):
    """On the others: receives the gradients of the inputs."""

    @staticmethod
    def forward(ctx: Any, received: Tensor, group: Group, owner: int, *inputs: Tensor) -> Tensor:
        ctx.group, ctx.owner = group, owner
        ctx.likes = [torch.empty_like(each, device="meta") for each in inputs]
        ctx.mark_dirty(received)
        return received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        device, found = gradients[0].device, list[Tensor]()
        # The worker of the module reaches its inputs in the reverse order.
        for like in reversed(ctx.likes):
            gradient = torch.empty(like.shape, dtype=like.dtype, device=device)
            ctx.group.broadcast(gradient, ctx.owner).wait()
            found.insert(0, gradient)
        return None, None, None, *found
