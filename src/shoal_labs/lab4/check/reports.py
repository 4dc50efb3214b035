"""The workers' records, collected by the driver over RPC."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch.distributed.autograd as dist_autograd
from torch import Tensor
from torch.distributed import rpc

from shoal_labs.lab4.check.seen import SEEN, Held, Report


def outside(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a thread of its own: contexts belong to threads, and the check's calls to none."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(function, *args).result()


def gather(context: int | None) -> list[Report]:
    """The reports of all workers."""
    return [rpc.rpc_sync(name, report, args=(name, context)) for name in worker_names()]


def worker_names() -> list[str]:
    """The names of all workers."""
    agent = rpc.api._get_current_rpc_agent()  # pyright: ignore[reportPrivateUsage]
    return sorted(info.name for info in agent.get_worker_infos())


def report(worker: str, context: int | None) -> Report:
    """What this worker has recorded; its gradients are those of the context."""
    try:
        grads: dict[Tensor, Tensor] = {} if context is None else dist_autograd.get_gradients(context)
    except RuntimeError:  # a worker that took no part does not know the context
        grads = {}
    return Report(
        worker,
        list(SEEN.calls),
        {
            name: Held(id(param), _copied(param), _copied(grads[param]) if param in grads else None)
            for name, param in SEEN.held.items()
        },
        list(SEEN.other_weights),
        list(SEEN.detached),
        SEEN.seeded,
        list(SEEN.softmaxes),
    )


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()


def identities(owners: list[str], params: list[Any]) -> list[int]:
    """The objects that references refer to, on their owners."""
    return [
        rpc.rpc_sync(owner, _identity, args=(param,)) for owner, param in zip(owners, params, strict=True)
    ]


def _identity(param: Any) -> int:
    return id(param.local_value())
