"""Makes torch record what the student's program does with it: layers, losses, contexts, backward, optimizer.

`install` replaces functions of torch in this process before the student's files are imported, so the record is the same
for every way to write the program. Faults that would end in an unreadable error of torch stop the program here.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import FrameType
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
from torch import Tensor, nn
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.one_step import is_number
from shoal_labs.lab4.check.holds import Holds
from shoal_labs.lab4.check.reports import gather, identities, outside
from shoal_labs.lab4.check.seen import (
    FIRST,
    LAST,
    LAYERS,
    SEEN,
    Backward,
    LayerCall,
    Loss,
    Optimizer,
    Step,
)


class Enough(BaseException):
    """Ends the student's program: the check has seen as many steps as it needs."""


class Wrong(BaseException):
    """Ends the student's program with a fault that leaves nothing more to see."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__()
        self.faults = faults


def install(folder: str, steps: int, holds: Holds | None) -> None:
    """Record everything from now on; end after so many steps. With `holds` micro-batches must overlap."""
    SEEN.folder = folder
    functional: Any = nn.functional
    for name in ("conv2d", "linear"):
        setattr(functional, name, _layer(getattr(functional, name), holds))
    for name in ("cross_entropy", "nll_loss"):
        setattr(functional, name, _loss(getattr(functional, name)))
    # torch imports this module late and compares functions in it with rpc's: it must see the originals.
    import_module("torch.distributed.rpc.rref_proxy")
    setattr(rpc, "remote", _remote(rpc.remote))  # noqa: B010
    _record_parameters()
    _record_detaching()
    _record_seed()
    _record_softmax()
    _record_contexts()
    _record_optimizer(steps)


def _layer(original: Callable[..., Tensor], holds: Holds | None) -> Callable[..., Tensor]:
    def call(given: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        layer = LAYERS.get(tuple(weight.shape))
        if layer is None:
            SEEN.other_weights.append(tuple(weight.shape))
            return original(given, weight, bias, *args, **kwargs)
        begin_ns, context = time.monotonic_ns(), _current_context()
        SEEN.held[f"{layer}.weight"] = weight
        if bias is not None:
            SEEN.held[f"{layer}.bias"] = bias
        if holds and context is not None:
            holds.begin(layer)
        result = original(given, weight, bias, *args, **kwargs)
        kept = {FIRST: given, LAST: result}.get(layer)
        SEEN.calls.append(
            LayerCall(layer, context, begin_ns, None if kept is None else kept.detach().cpu().clone())
        )
        return result

    return call


def _loss(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(scores: Tensor, labels: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        kept = scores.detach().cpu().clone(), labels.cpu().clone()
        SEEN.losses.append(Loss(*kept, original.__name__, _current_context(), SEEN.batches()))
        return original(scores, labels, *args, **kwargs)

    return call


def _remote(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        SEEN.remote = True
        return original(*args, **kwargs)

    return call


def _record_parameters() -> None:
    """A module that holds only remote references has no parameters: asking it for them is a silent mistake."""
    original = nn.Module.parameters

    def parameters(self: nn.Module, recurse: bool = True) -> Iterator[nn.Parameter]:
        found = list(original(self, recurse))
        if not found and _refers(vars(self).values()):
            for frame in SEEN.frames():
                # A generator expression has a frame of its own, without a name.
                name = frame.f_code.co_name
                if not name.startswith("<") or name == "<module>":
                    SEEN.empty.append((name, SEEN.place()))
                    break
        return iter(found)

    nn.Module.parameters = parameters


def _refers(values: Iterable[Any]) -> bool:
    return any(
        isinstance(value, rpc.PyRRef)
        or (isinstance(value, list | tuple) and _refers(value))
        or (isinstance(value, dict) and _refers(value.values()))
        for value in values
    )


def _record_detaching() -> None:
    detach, enter = torch.Tensor.detach, torch.no_grad.__enter__

    def detached(self: Tensor) -> Tensor:
        place = _directly_from_the_student()
        if place and self.requires_grad:
            SEEN.detached.append(place)
        return detach(self)

    def entered(self: torch.no_grad) -> None:
        place = _directly_from_the_student()
        if place:
            SEEN.detached.append(place)
        enter(self)

    changed: Any = torch.Tensor
    changed.detach = detached
    torch.no_grad.__enter__ = entered


def _record_seed() -> None:
    original = torch.manual_seed

    def manual_seed(seed: int) -> torch.Generator:
        SEEN.seeded = SEEN.seeded or SEEN.place()
        return original(seed)

    torch.manual_seed = manual_seed


def _record_softmax() -> None:
    def recorded(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*args: Any, **kwargs: Any) -> Tensor:
            if _current_context() is not None:
                SEEN.softmaxes.append(([each.f_code.co_name for each in SEEN.frames()], SEEN.place()))
            return original(*args, **kwargs)

        return call

    for owner in (torch, Tensor):
        setattr(owner, "softmax", recorded(owner.softmax))  # noqa: B010


def watch_returns(steps: int) -> None:
    """Record what `train_step` of model.py returns after its first step, if that is not the last one."""

    def returned(frame: FrameType, event: str, value: Any) -> None:
        if event != "return" or frame.f_code.co_name != "train_step" or SEEN.returned is not None:
            return
        if frame.f_code.co_filename == f"{SEEN.folder}/model.py" and len(SEEN.steps) == 1 < steps:
            SEEN.returned = (type(value).__name__, float(value) if is_number(value) else None)

    sys.setprofile(returned)


def _directly_from_the_student() -> str:
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    return SEEN.place(frame) if frame.f_code.co_filename.startswith(f"{SEEN.folder}/") else ""


def _record_contexts() -> None:
    enter, leave, original = (
        dist_autograd.context.__enter__,
        dist_autograd.context.__exit__,
        dist_autograd.backward,
    )

    def entered(self: Any) -> int:
        number = enter(self)
        SEEN.contexts[number] = SEEN.place()
        SEEN.entered_ns[number] = time.monotonic_ns()
        SEEN.active.add(number)
        return number

    def left(self: Any, *error: Any) -> None:
        SEEN.active.discard(self.autograd_context._context_id())
        leave(self, *error)

    def backward(context_id: int, roots: Any, retain_graph: bool = False) -> None:
        place, context = SEEN.place(), context_id
        if context not in SEEN.active:
            raise Wrong(fault("backward_outside", place=place, entered=SEEN.contexts.get(context, "?")))
        # A second backward in a context would wait forever for the calls of the first step.
        if any(step.context == context for step in SEEN.steps):
            raise Wrong(fault("context_reused", place=SEEN.contexts[context]))
        reports = outside(gather, None)
        misplaced = SEEN.misplaced(reports, context, place)
        if misplaced:  # torch computes with a part of the graph, or waits forever for the rest
            raise Wrong(misplaced)
        losses = [roots] if isinstance(roots, Tensor) else list(roots)
        if not any(loss.requires_grad for loss in losses):
            cut = sorted({line for report in reports for line in report.detached})
            raise Wrong(fault("loss_detached", place=place, cut=cut or place))
        SEEN.backwards.append(Backward(context, sum(loss.detach().sum().item() for loss in losses), place))
        original(context, losses, retain_graph=retain_graph)

    local = torch.Tensor.backward

    def local_backward(self: Tensor, *args: Any, **kwargs: Any) -> None:
        if SEEN.active:
            raise Wrong(fault("local_backward", place=SEEN.place()))
        local(self, *args, **kwargs)

    changed_tensor: Any = torch.Tensor
    changed_tensor.backward = local_backward
    changed: Any = dist_autograd
    changed.context.__enter__, changed.context.__exit__ = entered, left
    changed.backward = backward


def _record_optimizer(most_steps: int) -> None:
    create, step = DistributedOptimizer.__init__, DistributedOptimizer.step

    def created(self: Any, optimizer_class: type, params_rref: Any, *args: Any, **kwargs: Any) -> None:
        place, params = SEEN.place(), list(params_rref)
        create(self, optimizer_class, params, *args, **kwargs)
        owners = [param.owner().name for param in params]
        found = outside(identities, owners, params)
        SEEN.optimizers.append(
            Optimizer(place, optimizer_class, args, kwargs, list(zip(owners, found, strict=True)))
        )

    def stepped(self: Any, context_id: int) -> None:
        place = SEEN.place()
        if context_id not in SEEN.active:
            raise Wrong(fault("context_left", place=place, entered=SEEN.contexts.get(context_id, "?")))
        if not any(each.context == context_id for each in SEEN.backwards):
            raise Wrong(fault("no_backward", place=place))
        before = outside(gather, context_id)
        step(self, context_id)
        SEEN.steps.append(Step(context_id, place, before, outside(gather, context_id)))
        if len(SEEN.steps) == most_steps:
            raise Enough

    changed: Any = DistributedOptimizer
    changed.__init__, changed.step = created, stepped


def _current_context() -> int | None:
    try:
        return dist_autograd._current_context()._context_id()  # pyright: ignore
    except RuntimeError:
        return None
