"""The order of a model's modules, observed while the model runs: for a model that does not declare it.

::

    forward(x):   x = embed(x); for block in blocks: x = block(x); return head(x)
    observed:     x ─ embed ─ blocks.0 ─ blocks.1 ─ head ─ result     each takes what left the one before it

A module is taken apart into the modules inside it if these run one after the other and do all of its work. What one
of them returns must be the tensor that the next one takes: the same object, with nothing written into it in between. So
a function between two modules, a skip connection or a second input ends the search, and the module stays one layer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from shoal.errors import ConfigError
from shoal.models.common import evaluation_mode, random_state_kept


@dataclass(frozen=True)
class Order:
    """Modules that compute a model, one after the other."""

    names: tuple[str, ...]
    """In the order of their calls; a module that is used twice is here twice."""
    reasons: Mapping[str, str]
    """Why a module of these is not taken apart: what happens between the modules inside it."""


def observed_order(model: nn.Module, sample: Tensor) -> Order:
    """The order in which the modules of a model run, observed on the inputs of a few samples.

    Phase 1, observe: a forward pass in training mode and one in evaluation mode. Buffers and random state are kept.
    Phase 2, take apart: a module, beginning with the model itself, becomes the modules inside it, where both passes
    say that these run one after the other.

    >>> net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), num_layers=2)
    >>> observed_order(net, torch.ones(1, 3, 8)).names
    ('layers.0', 'layers.1')
    """
    with torch.enable_grad():
        training = _observe(model.train, model, sample)
    with torch.no_grad():
        evaluation = _observe(model.eval, model, sample)
    kind, reasons = type(model).__name__, dict[str, str]()
    names = tuple(_apart([training, evaluation], reasons))
    if names == ("",):
        raise ConfigError(
            f"cannot cut {kind} into stages: {reasons.get('', 'no module runs inside it')}",
            "Stages consist of modules that run one after the other: write nn.ReLU() for a function between them, make "
            f"one module of a skip connection, or give {kind} a method as_sequence() with (name, module) pairs.",
        )
    _check_complete(model, names)
    return Order(names, reasons)


@dataclass
class _Call:
    """One call of a module, and what happened inside it."""

    name: str
    input: Any
    others: tuple[str, ...]
    """Names of the arguments after the first that are not the defaults of `forward`."""
    version_in: int
    modes: tuple[bool, bool]
    """Whether gradients, and whether an autocast, were on."""
    events: list["_Call | _Function"] = field(default_factory=list["_Call | _Function"])
    output: Any = None
    version_out: int = 0

    @property
    def calls(self) -> list["_Call"]:
        """The calls of modules."""
        return [event for event in self.events if isinstance(event, _Call)]


class _Function(NamedTuple):
    """A function that returned a tensor, or several."""

    name: str
    result: Any


@final
class _Functions(TorchFunctionMode):
    """Writes down which functions are called inside a module, and outside of the modules in it."""

    def __init__(self, stack: list[_Call]) -> None:
        super().__init__()
        self._stack = stack

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        found = result if isinstance(result, tuple | list) else (result,)
        if any(isinstance(each, Tensor) for each in found):
            self._stack[-1].events.append(_Function(str(getattr(func, "__name__", func)), result))
        return result


def _observe(set_mode: Callable[[], object], model: nn.Module, sample: Tensor) -> _Call:
    """One forward pass, as the tree of its calls. All tensors stay alive, so an object has one identity."""
    stack = [_Call("", None, (), 0, (False, False))]
    device = sample.device

    def enter(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        taken, others = _arguments(module, args, kwargs)
        modes = torch.is_grad_enabled(), torch.is_autocast_enabled(device.type)
        call = _Call(name, taken, others, _version(taken), modes)
        stack[-1].events.append(call)
        stack.append(call)

    def leave(output: Any) -> None:
        call = stack.pop()
        call.output, call.version_out = output, _version(output)

    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with evaluation_mode(model), random_state_kept(device), ExitStack() as hooks:
        set_mode()  # the context restores the modes
        for name, module in model.named_modules():
            before = module.register_forward_pre_hook(
                lambda module, args, kwargs, name=name: enter(name, module, args, kwargs), with_kwargs=True
            )
            after = module.register_forward_hook(lambda module, args, output: leave(output))
            hooks.callback(before.remove)
            hooks.callback(after.remove)
        with _Functions(stack):
            model(sample.clone())
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)
    (whole,) = stack[0].calls
    return whole


def _arguments(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[str, ...]]:
    """The first argument of a call, and the names of others without which it would compute something else."""
    bound = signature(module.forward).bind(*args, **kwargs)
    given: list[tuple[str, Any, Any]] = []
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        if parameter.kind is Parameter.VAR_POSITIONAL:
            given += [(name, each, Parameter.empty) for each in value]
        elif parameter.kind is Parameter.VAR_KEYWORD:
            given += [(key, each, Parameter.empty) for key, each in value.items()]
        else:
            given.append((name, value, parameter.default))
    first = given[0][1] if given else None
    plain = (bool, int, float, str)
    return first, tuple(
        name
        for name, value, default in given[1:]
        if value is not default and not (isinstance(value, plain) and value == default)
    )


def _version(value: Any) -> int:
    """How often a tensor has been written into."""
    return value._version if isinstance(value, Tensor) else 0


def _apart(passes: Sequence[_Call], reasons: dict[str, str]) -> Iterator[str]:
    """The names of a module's parts, or its own; `passes` are the same call in several passes."""
    first, *again = passes
    order = [call.name for call in first.calls]
    if not order:
        yield first.name
        return
    if any(order != [call.name for call in other.calls] for other in again):
        reason = "other modules run in training than in evaluation"
    else:
        reason = next(filter(None, map(_broken, passes)), "")
    if reason:
        reasons[first.name] = reason
        yield first.name
    else:
        for parts in zip(*(each.calls for each in passes), strict=True):
            yield from _apart(parts, reasons)


def _broken(call: _Call) -> str:
    """Why the modules inside a call do not compute what it computes; empty if they do."""
    value, version, previous = call.input, call.version_in, ""
    functions: list[_Function] = []
    for event in call.events:
        if isinstance(event, _Function):
            functions.append(event)
            continue
        if previous and not isinstance(value, Tensor):
            return f"'{previous}' returns a {type(value).__name__}, and a stage passes on one tensor"
        if event.input is not value or event.version_in != version:
            return _where(previous, event.name, functions)
        if event.modes != call.modes:
            return f"forward() runs '{event.name}' inside torch.no_grad(), autocast or the like"
        if event.others:
            return f"'{event.name}' also takes {', '.join(event.others)}, and a stage passes on one tensor"
        if _computes_aside(functions, value):
            return _where(previous, event.name, functions)
        value, version, previous = event.output, event.version_out, event.name
        functions = []
    is_last = call.output is value and call.version_out == version
    return "" if is_last and not _computes_aside(functions, value) else _where(previous, "", functions)


def _computes_aside(functions: Sequence[_Function], value: Any) -> bool:
    """Whether functions computed something beside the value: it may decide what runs next, as a drawn number does.

    A function that returns the value itself, such as `contiguous`, changed nothing.
    """
    return any(each.result is not value for each in functions)


def _where(previous: str, following: str, functions: Sequence[_Function]) -> str:
    """What stands between two modules."""
    if previous and following:
        place = f"between '{previous}' and '{following}'"
    else:
        place = f"before '{following}'" if following else f"after '{previous}'"
    if not functions:
        return f"forward() passes on another tensor {place}"
    return f"forward() calls {', '.join(dict.fromkeys(each.name for each in functions))} {place}"


def _check_complete(model: nn.Module, names: Sequence[str]) -> None:
    """Refuse parameters and buffers that no stage would hold."""
    held = {
        id(each) for name in names for each in model.get_submodule(name).state_dict(keep_vars=True).values()
    }
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in held:
            raise ConfigError(
                f"cannot cut {type(model).__name__} into stages: '{name}' belongs to no module that its forward() runs",
                "Remove it, or use it in a module.",
            )
