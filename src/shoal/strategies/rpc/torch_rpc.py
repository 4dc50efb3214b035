"""Torch's RPC framework: its agents, what they offer each other, its errors and its distributed optimizer.

Torch keeps the framework in maintenance mode and warns about that; the warnings are silenced here and nowhere else.

Not safe: while workers connect, each unpickles and executes whatever reaches the port on which it listens, and bytes
that are no message abort it. So that port is on loopback, unless the user trusts the network
(`--i-trust-this-network`). Once all workers are connected, the kernel drops all that arrives there (`close_doors`).
"""

import contextlib
import ctypes
import logging
import os
import re
import socket
import struct
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed import rpc

from shoal.comm.rendezvous.network import interface_of, is_loopback
from shoal.errors import GroupError, MemberError

FOR_EVER_S = 86400.0
"""Torch's own timeout: never the one that ends a wait, because its message names neither the worker nor the reason."""

CONNECTION_THREADS = 8
"""Threads of an agent beside those of the micro-batches: they pass on activations, gradients and control messages."""

_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 6, 0, 0, 0)
"""A filter of packets for the kernel, with one instruction: return 0 bytes."""
_SCHEME = "shoal"
_schemes: set[str] = set()
"""The scheme, once a connection has used it: torch ties remote references to the first agent of a process."""
_published: list[Any] = []
_doors: list[int] = []
"""The descriptors on which the agent listens."""


def worker_name(rank: int) -> str:
    """The name of a worker, as the course has it."""
    return f"worker{rank}"


def connect(store: Any, rank: int, size: int, address: str, num_calls: int) -> None:
    """Start this process's agent, which listens on `address`, and connect it to those of all workers.

    `num_calls` is the largest number of calls that one worker answers at the same time.
    """

    def rendezvous(url: str, **options: Any) -> Iterator[tuple[Any, int, int]]:
        del url, options
        yield store, rank, size

    if _SCHEME in _schemes:
        raise GroupError("torch's RPC can be started once in each process", "Start another process.")
    _schemes.add(_SCHEME)
    dist.register_rendezvous_handler(_SCHEME, rendezvous)
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"{_SCHEME}://",
        rpc_timeout=FOR_EVER_S,
        num_worker_threads=num_calls + CONNECTION_THREADS,
        # Torch's default on one machine, shared memory, polls without rest: it takes the cores from the stages.
        _transports=["uv"],
        _channels=["cma", "basic"],
    )
    before = set(_listeners())
    with _listening_on(address), _silenced():
        rpc.init_rpc(worker_name(rank), rank=rank, world_size=size, rpc_backend_options=options)
        # An agent connects to another, and to itself, at the first call, and after that needs no listener.
        for future in [rpc.rpc_async(worker_name(other), os.getpid) for other in range(size)]:
            future.wait()
    _doors[:] = set(_listeners()) - before


def close_doors() -> None:
    """Have the kernel drop all that reaches the ports of the agent from now on, once all workers are connected.

    Connections stay. A system that has no such filters of packets goes on as before.
    """
    program = ctypes.create_string_buffer(_DROP_ALL, len(_DROP_ALL))
    for descriptor in _doors:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as door:
            door.setsockopt(
                socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program))
            )


def _listeners() -> Iterator[int]:
    """The descriptors of this process that listen for connections."""
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                yield int(name)


def shutdown(graceful: bool = True) -> None:
    """End the agent; gracefully: once no worker has calls under way."""
    _published.clear()
    with _silenced():
        rpc.shutdown(graceful)


def publish(thing: object) -> None:
    """Offer an object to the calls of other workers."""
    _published[:] = [thing]


def published() -> Any:
    """The object that this process offers."""
    return _published[0]


def reference_to(rank: int) -> Any:
    """A remote reference (RRef) to the object that a worker offers; its methods can be called from here."""
    return rpc.remote(worker_name(rank), published)


def call_error(error: Exception, where: str) -> GroupError:
    """The error of a call that ended before `where`. Of a backward pass, torch passes on the rank and nothing else.

    >>> print(call_error(RuntimeError("Error on Node 0: Error on Node 2: python_error"), "step 3").message)
    rank 2 failed before step 3: an exception in the backward pass of its stage
    """
    text = str(error).strip()
    ranks = re.findall(r"Error on Node (\d+)", text)
    if not ranks:
        return GroupError(f"a remote call failed before {where}: {text.splitlines()[0]}")
    return MemberError(
        f"rank {ranks[-1]} failed before {where}: an exception in the backward pass of its stage",
        "Torch's RPC does not pass on which. With --strategy single the traceback shows it.",
        rank=int(ranks[-1]),
        reason="failed",
    )


def distributed_optimizer(make: Any, params: Sequence[Any]) -> Any:
    """A DistributedOptimizer: on each owner of parameters, `make(params)` builds the optimizer of its own.

    `step(context)` runs `step()` of each, with the gradients of the context in `param.grad`.
    """
    # Loads all of torch's distributed modules: a second of every start, so only this strategy pays it.
    from torch.distributed.optim.optimizer import DistributedOptimizer

    with _silenced():
        return DistributedOptimizer(make, list(params))


@contextmanager
def _listening_on(address: str) -> Generator[None]:
    """Inside, agents and the group that starts them listen on the interface of this address alone.

    An interface that the user has chosen counts more, except on loopback: that is a matter of trust.
    """
    names = ("TP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    before = {name: os.environ.get(name) for name in names}
    found = interface_of(address)
    os.environ.update({name: found if is_loopback(address) else before[name] or found for name in names})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _silenced() -> Generator[None]:
    """Inside, torch does not warn that its RPC is old, nor that our optimizers are not written in TorchScript."""
    log = logging.getLogger("torch.distributed.optim.optimizer")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
