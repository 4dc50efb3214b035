"""A GPU that is the processor: `.cuda()`, `.to("cuda:0")` and `device="cuda"` give tensors of the processor.

Its collectives have ended when they begin; their handles know whether anybody has waited for them.
"""

import inspect
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shoal_labs.check.standins.replace import instead_of

FACTORIES = (
    *("tensor", "as_tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm"),
    *("arange", "linspace", "eye", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like"),
    *("randn_like", "randint_like", "Generator", "load"),
)
NO_EFFECT = ("set_device", "empty_cache", "manual_seed", "manual_seed_all", "init")
PENDING: list["Handle"] = []
"""Of this process: handles that nobody has waited for yet."""


class Handle:
    """The handle of a collective that was called with `async_op=True`.

    The collective has ended already: a program that does not wait gets the same numbers in every run, and the missing
    wait is still seen.
    """

    def __init__(self, work: Any) -> None:
        work.wait()
        self._work = work
        self.place, self.functions = "", [""]
        PENDING.append(self)

    def __getattr__(self, name: str) -> Any:
        """Every use waits: `wait()`, a loop over `is_completed()`, a future."""
        if self in PENDING:
            PENDING.remove(self)
        return getattr(self._work, name)


def wait_for(given: Any) -> None:
    """Wait for the handles that a function gave back."""
    for each in given if isinstance(given, list | tuple) else [given]:
        if isinstance(each, Handle):
            each.wait()


class Event:
    """A time on the processor's clock, as torch.cuda.Event is one on the GPU's."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        """When the work that was queued so far is done."""
        return time.perf_counter()

    def record(self, *_: Any) -> None:
        """Now."""
        self.time_s = self.now()

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds until another event."""
        return 1e3 * (end.time_s - self.time_s)


def install() -> None:
    """Replace the calls of this process that would need a GPU."""
    for kind in (Tensor, nn.Module):
        instead_of(kind, "cuda")(lambda original, thing, *_, **__: thing)
        instead_of(kind, "to")(_on_processor)
    instead_of(torch, *(name for name in FACTORIES if not isinstance(getattr(torch, name), type)))(
        _on_processor
    )
    for name in NO_EFFECT:
        setattr(torch.cuda, name, lambda *_, **__: None)
    cuda: Any = torch.cuda
    cuda.synchronize, cuda.Event, cuda.device_count = lambda *_, **__: PENDING.clear(), Event, lambda: 0
    instead_of(dist, "init_process_group")(_with_gloo)
    instead_of(dist, "all_reduce", "reduce")(_with_mean)


def _on_processor(original: Any, *args: Any, **kwargs: Any) -> Any:
    return original(*map(_processor, args), **{key: _processor(each) for key, each in kwargs.items()})


def _processor(value: Any) -> Any:
    """The processor instead of a GPU; anything else as it is.

    >>> _processor("cuda:1"), _processor(torch.device("cuda")), _processor("train")
    ('cpu', device(type='cpu'), 'train')
    """
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


class _Done:
    """A collective that has ended."""

    def wait(self, *_: Any) -> bool:
        """Nothing to wait for."""
        return True

    is_completed = wait


def _with_mean(original: Any, *args: Any, **kwargs: Any) -> Any:
    """NCCL can average, gloo cannot: the sum, divided."""
    given = inspect.signature(original).bind(*args, **kwargs)
    if given.arguments.get("op") != dist.ReduceOp.AVG:
        return original(*args, **kwargs)
    waits = not given.arguments.get("async_op")
    given.arguments.update(op=dist.ReduceOp.SUM, async_op=False)
    original(*given.args, **given.kwargs)
    given.arguments["tensor"].div_(dist.get_world_size())
    return None if waits else _Done()


def _with_gloo(original: Any, backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
    return original("gloo" if backend == "nccl" else backend, *args, **kwargs)
