"""How torch's backends differ: how they connect, which memory they move, how their works are polled."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.errors import JoinError

_DAY = timedelta(days=1)
"""Torch's own timeout: never the one that ends a wait, because it cannot name the missing member."""

_CONNECT = timedelta(minutes=1)
"""How long connecting to members that have already met may take."""

_GLANCE_S = 50e-6
"""Between two polls of a work."""


def _gloo(store: Any, rank: int, size: int, host: str) -> Any:
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = _CONNECT
    options._devices = [gloo.create_device(hostname=host)]
    backend = gloo(store, rank, size, options)
    backend._set_default_timeout(_DAY)
    return backend


def _nccl(store: Any, rank: int, size: int, host: str) -> Any:
    del host
    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        raise JoinError(
            f"rank {rank} cannot use nccl: torch sees no GPU here", "Use gloo, or shm on one machine."
        )
    return dist.ProcessGroupNCCL(store, rank, size, dist.ProcessGroupNCCL.Options())


def wait_gloo(work: Any) -> None:
    """Wait for as long as it takes. Without an argument, messages would time out after `_CONNECT`."""
    work.wait(_DAY)


def wait_nccl(work: Any) -> None:
    """The same; with an argument, NCCL would block the processor until the device is done."""
    work.wait()


def ask_gloo(work: Any, seconds: float) -> bool:
    """Wait that long at most; whether it is over."""
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError as error:
        if "timed out" in str(error).lower():
            return False
        raise
    return True


def ask_nccl(work: Any, seconds: float) -> bool:
    """The same by polling: a wait of NCCL's that runs out of time takes the whole communicator down."""
    deadline = time.monotonic() + seconds
    while not work.is_completed():
        if time.monotonic() > deadline:
            return False
        time.sleep(_GLANCE_S)
    work.wait()  # from here on the caller's own operations on the device come after it
    return True


class Backend(NamedTuple):
    """One of torch's backends."""

    make: Callable[[Any, int, int, str], Any]
    """Connects to the others: (store, rank, size, address to listen on)."""
    within_reach: Callable[[Tensor], Tensor]
    """The tensor in memory that the backend can move: itself, or a copy where it is on another device."""
    wait: Callable[[Any], None]
    """Waits for a work, for as long as it takes."""
    ask: Callable[[Any, float], bool]
    """Whether a work of the backend is over within so many seconds; asking does not break it."""
    silent: tuple[str, ...] = ()
    """Operations whose works report their completion only to a wait."""


GLOO = Backend(_gloo, Tensor.cpu, wait_gloo, ask_gloo, silent=("reduce_scatter",))
NCCL = Backend(_nccl, Tensor.cuda, wait_nccl, ask_nccl)
BACKENDS: dict[str, Backend] = {"gloo": GLOO, "nccl": NCCL}
"""Torch's backends by name."""
