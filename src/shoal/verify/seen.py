"""Where the steps of a torch program are seen: functions and methods of torch, replaced while the program runs.

| moment | seen by |
|---|---|
| a batch | `next()` of a `DataLoader`'s iterator |
| a forward pass | `nn.Module.__call__` of the outermost module with parameters, where gradients are on |
| a backward pass | `torch.autograd.backward`, which `Tensor.backward` calls |
| an update | torch's hooks of all optimizers; the update of `shoal.OneCopy` and `shoal.zero` |
"""

import threading
import weakref
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, dataloader

from shoal.comm.over_torch.torch_calls import first_tensor
from shoal.comm.over_torch.torch_calls import replace as replace_in
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel
from shoal.strategies.library.divided_training import DividedTraining

WRAPPERS = ("module.", "_orig_mod.")
"""What wrappers put before the names of parameters."""


class Enough(BaseException):
    """Ends the program: all is seen. Not an Exception, so that the program does not handle it."""


def bare(name: str) -> str:
    """The name of a parameter without its wrappers.

    >>> bare("module._orig_mod.layers.0.weight")
    'layers.0.weight'
    """
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name


class Steps:
    """The steps of one process, as a program makes them; a step ends with `optimizer.step()`.

    What follows from a moment is left to those that derive from this class.
    """

    def __init__(self, comparable: bool = False) -> None:
        self.step = 0
        self.backwards = 0
        """Backward passes of this step so far."""
        self.forwards = 0
        self.tensors: dict[str, Tensor] = {}
        """Parameters of all models that were called, by name."""
        self.buffers: dict[str, Tensor] = {}
        self._roots: dict[int, tuple[nn.Module, str]] = {}
        self._began: set[int] = set()
        self._comparable = comparable
        self._updating = 0
        self._loaders: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._passes: dict[int, int] = {}
        self.drawn: dict[int, int] = {}
        """Batches of the present pass over each loader."""

    def begins(self, names: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """A model is called for the first time in this step, with these parameters and buffers."""

    def found(self, names: Mapping[str, Tensor]) -> None:
        """Parameters of a model that was not called before."""

    def forward(self, model: nn.Module, inputs: Tensor | None, output: Any, is_random: bool) -> None:
        """A forward pass has ended."""

    def backward(self, loss: Any) -> None:
        """A backward pass is about to begin."""

    def exchanged(self, grads: Mapping[str, Tensor]) -> None:
        """A backward pass has ended, in which a wrapper has exchanged these gradients."""

    def updates(self, optimizer: Any) -> None:
        """An update is about to begin."""

    def updated(self, optimizer: Any) -> None:
        """An update has ended."""

    def batch(self, loader: int, number: int, iterator: Any, load: Callable[[], Any]) -> Any:
        """The next batch of pass `number` over a loader."""
        del loader, number, iterator
        return load()

    def length(self, loader: int, count: Callable[[], int]) -> int:
        """The number of batches of a loader."""
        del loader
        return count()

    def closes(self) -> None:
        """The workers are about to leave each other: parts of tensors can be put together for the last time."""

    def enters(self, model: nn.Module) -> None:
        """A forward pass is about to begin."""
        if self._comparable:
            for module in model.modules():
                if random_or_shared(module):
                    module.eval()
        self.knows(model)
        if id(model) not in self._began:
            self._began.add(id(model))
            prefix = self._roots[id(model)][1]
            self.begins(_named(model.named_parameters(), prefix), _named(model.named_buffers(), prefix))

    def knows(self, model: nn.Module) -> None:
        """Give names to the parameters of a model, unless they have some."""
        if id(model) in self._roots:
            return
        known = {id(param) for param in self.tensors.values()}
        params = dict(model.named_parameters())
        is_new = any(id(param) not in known for param in params.values())
        prefix = f"{type(model).__name__}{len(self._roots)}." if self._roots and is_new else ""
        self._roots[id(model)] = (model, prefix)
        fresh = {
            name: param for name, param in _named(params.items(), prefix).items() if id(param) not in known
        }
        self.tensors |= fresh
        self.buffers |= _named(model.named_buffers(), prefix)
        self.found(fresh)

    def update_begins(self, optimizer: Any, *_: object) -> None:
        """An optimizer begins its step; those inside it are a part of this step."""
        self._updating += 1
        if self._updating == 1:
            self.updates(optimizer)

    def update_ends(self, optimizer: Any, *_: object) -> None:
        """An optimizer has ended its step, and with it the step of the program."""
        self._updating -= 1
        if self._updating:
            return
        self.updated(optimizer)
        self.step += 1
        self.backwards = self.forwards = 0
        self._began.clear()

    def grads(self, held: Collection[int]) -> dict[str, Tensor]:
        """Gradients of this step, by name: of models that it called, and of parameters with these ids.

        Those of other models may be left from steps before.
        """
        called = (model for key, (model, _) in self._roots.items() if key in self._began)
        mine = {id(param) for model in called for param in model.parameters()}.union(held)
        named = {name: param for name, param in self.tensors.items() if id(param) in mine}
        return {name: param.grad for name, param in named.items() if param.grad is not None}

    def models(self) -> list[nn.Module]:
        """The models that were called."""
        return [model for model, _ in self._roots.values()]

    def made(self, loader: Any) -> None:
        """A loader is made; all workers make theirs in the same order."""
        self._loaders[loader] = len(self._loaders)

    def number(self, loader: Any) -> int:
        """Which loader this is; −1 if it was made before anything was seen."""
        return self._loaders.get(loader, -1)

    def opened(self, iterator: Any, loader: Any) -> None:
        """A pass over a loader begins."""
        number = self.number(loader)
        iterator.shoal_pass = (number, self._passes.get(number, 0))
        self._passes[number] = self._passes.get(number, 0) + 1
        self.drawn[number] = 0


def _named(pairs: Any, prefix: str) -> dict[str, Tensor]:
    return {prefix + bare(name): tensor for name, tensor in pairs}


def random_or_shared(module: nn.Module) -> bool:
    """Whether it draws numbers, or computes with the statistics of its own worker's samples."""
    return module.training and (is_random(module) or is_shared(module))


def is_random(module: nn.Module) -> bool:
    """Dropout that is on."""
    return isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0  # pyright: ignore[reportPrivateUsage]


def is_shared(module: nn.Module) -> bool:
    """BatchNorm of a worker's own samples."""
    kind = nn.modules.batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage]
    return isinstance(module, kind) and "Sync" not in type(module).__name__


_current: list[Steps] = []


@contextmanager
def seen(steps: Steps) -> Generator[None]:
    """Tell `steps` what the program does in the body of the `with`."""
    iterator: Any = dataloader._BaseDataLoaderIter  # pyright: ignore[reportPrivateUsage]
    with ExitStack() as undo:
        replace = partial(replace_in, undo)
        inside = threading.local()
        replace(nn.Module, "__call__", lambda call: _forward(steps, call, inside))
        replace(torch.autograd, "backward", lambda call: _backward(steps, call))
        replace(DataLoader, "__init__", lambda call: _making(steps, call))
        replace(DataLoader, "__len__", lambda call: _counting(steps, call))
        replace(iterator, "__init__", lambda call: _opening(steps, call))
        replace(iterator, "__next__", lambda call: _loading(steps, call))
        replace(dist, "destroy_process_group", lambda call: _closing(steps, call))
        replace(DividedTraining, "_update_slices", lambda call: _dividing(steps, call))
        undo.callback(register_optimizer_step_pre_hook(steps.update_begins).remove)
        undo.callback(register_optimizer_step_post_hook(steps.update_ends).remove)
        _current.append(steps)
        undo.callback(_current.pop)
        yield


def watch(model: nn.Module, optimizer: Any) -> None:
    """Show an optimizer that is not torch's to `shoal verify`: its `step()` then ends a step.

    Outside of `shoal verify` nothing happens. It may have `param_groups` and `state` as torch's optimizers do.

    >>> watch(nn.Linear(2, 1), torch.optim.SGD([torch.zeros(1)], 0.1))  # not under `shoal verify`
    """
    if not _current or isinstance(optimizer, torch.optim.Optimizer):
        return
    steps, step = _current[-1], optimizer.step
    steps.knows(model)

    def watched(*args: Any, **kwargs: Any) -> Any:
        steps.update_begins(optimizer)
        result = step(*args, **kwargs)
        steps.update_ends(optimizer)
        return result

    optimizer.step = watched


def _forward(steps: Steps, call: Callable[..., Any], inside: threading.local) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or getattr(inside, "on", False) or not torch.is_grad_enabled():
            return call(self, *args, **kwargs)
        if not any(param.requires_grad for param in self.parameters()):
            return call(self, *args, **kwargs)
        inside.on = True
        try:
            steps.enters(self)
            before = torch.get_rng_state()
            output = call(self, *args, **kwargs)
            is_drawn = not torch.equal(before, torch.get_rng_state())
            steps.forward(self, first_tensor([args, kwargs]), output, is_drawn)
        finally:
            inside.on = False
        steps.forwards += 1
        return output

    return forward


def _backward(steps: Steps, call: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        steps.backward(tensors)
        result = call(tensors, *args, **kwargs)
        if any(map(_exchanges, steps.models())):
            steps.exchanged({name: p.grad for name, p in steps.tensors.items() if p.grad is not None})
        steps.backwards += 1
        return result

    return backward


def _exchanges(model: nn.Module) -> bool:
    """Whether the gradients of a backward pass through this model are exchanged when it ends."""
    is_wrapper = isinstance(model, nn.parallel.DistributedDataParallel | DistributedDataParallel)
    return is_wrapper and bool(getattr(model, "require_backward_grad_sync", True))


def _closing(steps: Steps, call: Callable[..., Any]) -> Callable[..., Any]:
    def close(*args: Any, **kwargs: Any) -> None:
        steps.closes()
        call(*args, **kwargs)

    return close


def _dividing(steps: Steps, call: Callable[..., Any]) -> Callable[..., Any]:
    """Every worker makes this update; the optimizer inside it has this worker's slices, and may have none."""

    def update(self: DividedTraining, *args: Any, **kwargs: Any) -> Any:
        with self._sums_shown():  # pyright: ignore[reportPrivateUsage]
            steps.update_begins(self.optimizer)
        result = call(self, *args, **kwargs)
        steps.update_ends(self.optimizer)
        return result

    return update


def _making(steps: Steps, call: Callable[..., Any]) -> Callable[..., Any]:
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        call(self, *args, **kwargs)
        steps.made(self)

    return make


def _counting(steps: Steps, call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: steps.length(steps.number(self), lambda: call(self))


def _opening(steps: Steps, call: Callable[..., Any]) -> Callable[..., Any]:
    def open_pass(self: Any, loader: Any) -> None:
        call(self, loader)
        steps.opened(self, loader)

    return open_pass


def _loading(steps: Steps, call: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any) -> Any:
        loader, number = self.shoal_pass
        found = steps.batch(loader, number, self, lambda: call(self))
        steps.drawn[loader] += 1
        return found

    return load
