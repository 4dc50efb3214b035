"""A GPU that is the processor: `.cuda()`, `.to("cuda:0")` and `device="cuda"` give tensors of the processor."""

import inspect
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shoal_labs.check.standins.handles import PENDING

FACTORIES = (
    *("tensor", "as_tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm"),
    *("arange", "linspace", "eye", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like"),
    *("randn_like", "randint_like", "Generator", "load"),
)
NO_EFFECT = ("set_device", "empty_cache", "manual_seed", "manual_seed_all", "init")


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
        setattr(kind, "cuda", lambda self, *_, **__: self)  # noqa: B010
        setattr(kind, "to", _on_processor(kind.to))  # noqa: B010
    for name in FACTORIES:
        original = getattr(torch, name)
        if not isinstance(original, type):
            setattr(torch, name, _on_processor(original))
    for name in NO_EFFECT:
        setattr(torch.cuda, name, lambda *_, **__: None)
    setattr(torch.cuda, "synchronize", lambda *_, **__: PENDING.clear())  # noqa: B010
    setattr(torch.cuda, "Event", Event)  # noqa: B010
    setattr(torch.cuda, "device_count", lambda: 0)  # noqa: B010
    dist.init_process_group = _with_gloo(dist.init_process_group)
    for name in ("all_reduce", "reduce"):
        setattr(dist, name, _with_mean(getattr(dist, name)))


def _on_processor(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(
            *(_processor(each) for each in args), **{key: _processor(each) for key, each in kwargs.items()}
        )

    return call


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


def _with_mean(original: Callable[..., Any]) -> Callable[..., Any]:
    """NCCL can average, gloo cannot: the sum, divided."""

    signature = inspect.signature(original)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if given.arguments.get("op") != dist.ReduceOp.AVG:
            return original(*args, **kwargs)
        waits = not given.arguments.get("async_op")
        given.arguments.update(op=dist.ReduceOp.SUM, async_op=False)
        original(*given.args, **given.kwargs)
        given.arguments["tensor"].div_(dist.get_world_size())
        return None if waits else _Done()

    return call


def _with_gloo(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        return original("gloo" if backend == "nccl" else backend, *args, **kwargs)

    return call
