"""Makes torch record what the student's program does with it: layers, losses, contexts, backward, optimizer.

`install` replaces functions of torch in this process before the student's files are imported, so the record is the same
for every way to write the program. Faults that would end in an unreadable error of torch stop the program here.
"""

import sys
import time
from collections.abc import Iterable, Iterator
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
from shoal_labs.check.standins.replace import instead_of
from shoal_labs.lab4.check.holds import Holds
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
    copied,
    gather,
    identities,
    outside,
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
    # torch imports this module late and compares functions in it with rpc's: it must see the originals.
    import_module("torch.distributed.rpc.rref_proxy")
    _record_network(holds)
    _record_silent_mistakes()
    _record_contexts()
    _record_backward()
    _record_optimizer(steps)


def _record_network(holds: Holds | None) -> None:
    """Layers, losses and softmaxes."""

    @instead_of(nn.functional, "conv2d", "linear")
    def layer(
        original: Any, given: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> Tensor:
        name = LAYERS.get(tuple(weight.shape))
        if name is None:
            SEEN.other_weights.append(tuple(weight.shape))
            return original(given, weight, bias, *args, **kwargs)
        begin_ns, context = time.monotonic_ns(), _current_context()
        SEEN.held[f"{name}.weight"] = weight
        if bias is not None:
            SEEN.held[f"{name}.bias"] = bias
        if holds and context is not None:
            holds.begin(name)
        result = original(given, weight, bias, *args, **kwargs)
        kept = {FIRST: given, LAST: result}.get(name)
        SEEN.calls.append(LayerCall(name, context, begin_ns, None if kept is None else copied(kept)))
        return result

    @instead_of(nn.functional, "cross_entropy", "nll_loss")
    def loss(original: Any, scores: Tensor, labels: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        SEEN.losses.append(
            Loss(copied(scores), copied(labels), original.__name__, _current_context(), SEEN.batches())
        )
        return original(scores, labels, *args, **kwargs)

    for owner in (torch, Tensor):

        @instead_of(owner, "softmax")
        def softmax(original: Any, *args: Any, **kwargs: Any) -> Tensor:
            if _current_context() is not None:
                SEEN.softmaxes.append(([each.f_code.co_name for each in SEEN.frames()], SEEN.place()))
            return original(*args, **kwargs)


def _record_silent_mistakes() -> None:
    """What torch allows and a split program does not mean: no parameters, a cut graph, a seed of one process."""

    @instead_of(nn.Module, "parameters")
    def parameters(original: Any, module: nn.Module, recurse: bool = True) -> Iterator[nn.Parameter]:
        found = list(original(module, recurse))
        if not found and _refers(vars(module).values()):
            for frame in SEEN.frames():
                # A generator expression has a frame of its own, without a name.
                name = frame.f_code.co_name
                if not name.startswith("<") or name == "<module>":
                    SEEN.empty.append((name, SEEN.place()))
                    break
        return iter(found)

    @instead_of(Tensor, "detach")
    def detached(detach: Any, tensor: Tensor) -> Tensor:
        place = _directly_from_the_student()
        if place and tensor.requires_grad:
            SEEN.detached.append(place)
        return detach(tensor)

    @instead_of(torch.no_grad, "__enter__")
    def entered(enter: Any, no_grad: torch.no_grad) -> None:
        if place := _directly_from_the_student():
            SEEN.detached.append(place)
        enter(no_grad)

    @instead_of(torch, "manual_seed")
    def manual_seed(original: Any, seed: int) -> torch.Generator:
        SEEN.seeded = SEEN.seeded or SEEN.place()
        return original(seed)

    @instead_of(rpc, "remote")
    def remote(original: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.remote = True
        return original(*args, **kwargs)


def _refers(values: Iterable[Any]) -> bool:
    return any(
        isinstance(value, rpc.PyRRef)
        or (isinstance(value, list | tuple) and _refers(value))
        or (isinstance(value, dict) and _refers(value.values()))
        for value in values
    )


def watch_returns(steps: int) -> None:
    """Record what `train_step` of model.py returns after its first step, if that is not the last one."""

    def returned(frame: FrameType, event: str, value: Any) -> None:
        if event != "return" or frame.f_code.co_name != "train_step" or SEEN.returned is not None:
            return
        if frame.f_code.co_filename == f"{SEEN.folder}/model.py" and len(SEEN.steps) == 1 < steps:
            SEEN.returned = (type(value).__name__, float(value) if is_number(value) else None)

    sys.setprofile(returned)


def _directly_from_the_student() -> str:
    frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]
    return SEEN.place(frame) if frame.f_code.co_filename.startswith(f"{SEEN.folder}/") else ""


def _record_contexts() -> None:
    @instead_of(dist_autograd.context, "__enter__")
    def entered(enter: Any, context: Any) -> int:
        number = enter(context)
        SEEN.contexts[number] = SEEN.place()
        SEEN.entered_ns[number] = time.monotonic_ns()
        SEEN.active.add(number)
        return number

    @instead_of(dist_autograd.context, "__exit__")
    def left(leave: Any, context: Any, *error: Any) -> None:
        SEEN.active.discard(context.autograd_context._context_id())
        leave(context, *error)


def _record_backward() -> None:
    @instead_of(dist_autograd, "backward")
    def backward(original: Any, context_id: int, roots: Any, retain_graph: bool = False) -> None:
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

    @instead_of(Tensor, "backward")
    def local_backward(local: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        if SEEN.active:
            raise Wrong(fault("local_backward", place=SEEN.place()))
        local(tensor, *args, **kwargs)


def _record_optimizer(most_steps: int) -> None:
    @instead_of(DistributedOptimizer, "__init__")
    def created(
        create: Any, optimizer: Any, optimizer_class: type, params_rref: Any, *args: Any, **kwargs: Any
    ) -> None:
        place, params = SEEN.place(), list(params_rref)
        create(optimizer, optimizer_class, params, *args, **kwargs)
        owners = [param.owner().name for param in params]
        found = zip(owners, outside(identities, owners, params), strict=True)
        SEEN.optimizers.append(Optimizer(place, optimizer_class, args, kwargs, list(found)))

    @instead_of(DistributedOptimizer, "step")
    def stepped(step: Any, optimizer: Any, context_id: int) -> None:
        place = SEEN.place()
        if context_id not in SEEN.active:
            raise Wrong(fault("context_left", place=place, entered=SEEN.contexts.get(context_id, "?")))
        if not any(each.context == context_id for each in SEEN.backwards):
            raise Wrong(fault("no_backward", place=place))
        before = outside(gather, context_id)
        step(optimizer, context_id)
        SEEN.steps.append(Step(context_id, place, before, outside(gather, context_id)))
        if len(SEEN.steps) == most_steps:
            raise Enough


def _current_context() -> int | None:
    try:
        return dist_autograd._current_context()._context_id()  # pyright: ignore
    except RuntimeError:
        return None
