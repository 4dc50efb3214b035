"""A parameter server against torch's RPC, Hogwild against no communication, and a slow worker that no one waits for.

Two workers, and where there are servers one server: processes with one thread each. In a round every worker makes its
number of steps, and the round ends with the last worker:

    torch rpc            a plain parameter server: `rpc_sync` with all gradients, a lock, SGD, all weights back (mlp)
    asp                  ours, over shared memory (mlp)
    hogwild              ours: one shared copy of the weights (mlp)
    shared array         the least that any Hogwild does: compute with one array that both workers update (mlp)
    no communication     each worker trains a model of its own (mlp)
    slow, asp            lenet; worker 1 is 3 times slower, so worker 0 makes 3 times as many steps
    slow, alone          the same steps without communication: the rate Σ 1/tᵢ

Equal numbers of steps, so ratios of times are ratios of updates per second. Each rival has processes of its own, which
sleep while others run. On a machine with two cores the server takes its time from the workers. Row *shared array*: what
of the time of `hogwild` is the memory's.

    python bench/server.py [--steps 60] [--rounds 9] [--json] [--only hogwild "shared array"]
"""

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch import Tensor, nn

from common import Target, interleave, options, report
from shoal import models, optim
from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.comm.shared_memory.group import SharedMemoryGroup
from shoal.config.conditions import Bottleneck
from shoal.config.sections.model import CrossEntropyConfig, LenetConfig, MlpConfig
from shoal.config.sections.optimizer import SgdConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.conditions import under_conditions
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.server.server import server_sync
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.strategy import Gradients, Pause, Serving, Share, Strategy, TrainingClock
from shoal.strategies.update import Update

WORKERS, BATCH, SLOWDOWN, LR = 2, 64, 3, 1e-3
SHAPE, OUTPUTS = (1, 28, 28), 10
RIVALS = {
    "torch rpc": "rpc",
    "asp": "asp",
    "hogwild": "hogwild",
    "shared array": "array",
    "no communication": "alone",
    "slow, asp": "asp",
    "slow, alone": "alone",
}
TARGETS = [
    Target("torch rpc", "asp", at_least=3.0),
    Target("no communication", "hogwild", at_least=0.95),
    Target("slow, alone", "slow, asp", at_least=0.95),
]


def layout_of(rank: int, is_slow: bool) -> Whole:
    """The model of a rival; one of its workers may be slow."""
    config = LenetConfig() if is_slow else MlpConfig()
    model: nn.Module = models.build(config, SHAPE, OUTPUTS, seed=0)
    loss, span = CrossEntropyConfig(), SpanRecorder(HostClock())
    span.active = False
    engine = build_engine("torch", model, loss, span)
    bottlenecks = [Bottleneck(rank=1, slowdown=SLOWDOWN)] if is_slow else []

    def conditions(gradients: Gradients) -> Gradients:
        return under_conditions(
            gradients,
            engine.params.values(),
            engine.on_final,
            bottlenecks,
            (),
            rank,
            TrainingClock(),
            0,
            span,
        )

    return Whole(model, models.build_loss(loss), engine, span, conditions)


def strategy_of(kind: str, rank: int, is_slow: bool, world: Group | None) -> Strategy:
    """One of shoal's rivals on one rank."""
    layout = layout_of(rank, is_slow)
    update = Update(layout, lambda params: optim.build(SgdConfig(lr=LR), params))
    exchange, peers = AllReduce(), world or alone()
    if kind == "asp":
        assert world is not None
        peers = world.split(range(WORKERS) if rank < WORKERS else range(WORKERS, world.size))
    parts = SyncParts(layout, update, peers, exchange, Guard(peers, exchange, "stop"), world)
    if kind == "alone":
        return Sync(parts)
    return server_sync(parts, ServerConfig(mode="asp" if kind == "asp" else "hogwild"))


class SharedArray:
    """Gradients, and an update of weights that the other worker uses and writes, too; no guard, no settings."""

    def __init__(self, layout: Whole, world: Group) -> None:
        self._layout, self._params = layout, [*layout.params.values()]
        numels = [param.numel() for param in self._params]
        parts = world.common(sum(numels)).split(numels)
        self._common = [part.view(param.shape) for part, param in zip(parts, self._params, strict=True)]
        for common, param in zip(self._common, self._params, strict=True):
            common.copy_(param.detach())  # equal on both workers
            param.data = common
        world.barrier().wait()

    def step(self, share: Share, lr: float) -> None:
        """One update by this worker."""
        self._layout.gradients(share)
        gradients = [param.grad for param in self._params if param.grad is not None]
        torch._foreach_sub_(self._common, gradients, alpha=lr)  # pyright: ignore[reportPrivateUsage]


def share_of(rank: int) -> Share:
    """The samples of every step of a worker."""
    draw = torch.Generator().manual_seed(rank)
    inputs = torch.randn(BATCH, *SHAPE, generator=draw)
    labels = torch.randint(OUTPUTS, (BATCH,), generator=draw)
    return Share([Batch(inputs, labels, BATCH)], BATCH, BATCH)


class TorchServer:
    """The reference: the parameters of one process, updated under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._params = [*layout_of(WORKERS, is_slow=False).params.values()]
        self._optimizer = torch.optim.SGD(self._params, lr=LR)

    def push(self, gradients: list[Tensor]) -> list[Tensor]:
        """Apply a worker's gradients; the new weights."""
        with self._lock:
            for param, gradient in zip(self._params, gradients, strict=True):
                param.grad = gradient
            self._optimizer.step()
            return [param.detach() for param in self._params]


_SERVER: list[TorchServer] = []


def push_to_server(gradients: list[Tensor]) -> list[Tensor]:
    """The remote call."""
    return _SERVER[0].push(gradients)


def torch_step(layout: Whole, share: Share) -> None:
    """A step of a worker of the reference."""
    layout.gradients(share)
    params = [*layout.params.values()]
    gradients = [param.grad for param in params]
    weights = rpc.rpc_sync("server", push_to_server, args=(gradients,))
    with torch.no_grad():
        for param, weight in zip(params, weights, strict=True):
            param.copy_(weight)


def work(name: str, rank: int, port: int, pipe: Connection, steps: int) -> None:
    """One process of a rival: makes its steps whenever it is asked."""
    torch.set_num_threads(1)
    kind, is_slow = RIVALS[name], name.startswith("slow")
    share = share_of(rank)
    count = steps * (SLOWDOWN if is_slow and rank == 0 else 1)
    if kind == "rpc":
        backend = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
        if rank == WORKERS:
            _SERVER.append(TorchServer())
        own = "server" if rank == WORKERS else f"worker{rank}"
        rpc.init_rpc(own, rank=rank, world_size=WORKERS + 1, rpc_backend_options=backend)
        layout = layout_of(rank, is_slow)
        while pipe.recv():
            for _ in range(count if rank < WORKERS else 0):
                torch_step(layout, share)
            pipe.send("done")
        rpc.shutdown()
        return
    world: Group | None = None
    if kind != "alone":
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        size = WORKERS + (kind == "asp")
        world = SharedMemoryGroup.join(dist.PrefixStore(name, store), rank, size)
    if kind == "array":
        assert world is not None
        array = SharedArray(layout_of(rank, is_slow), world)
        while pipe.recv():
            for _ in range(count):
                array.step(share, LR)
            pipe.send("done")
        return
    strategy = strategy_of(kind, rank, is_slow, world)
    while pipe.recv():
        if strategy.serves:
            strategy.serve(Serving())
        else:
            for _ in range(count):
                strategy.step(share, LR)
            if kind == "asp":
                strategy.copies.barrier().wait()
                strategy.pause(Pause({}, is_end=False))
        pipe.send("done")


class Rival:
    """The processes of one rival."""

    def __init__(self, name: str, port: int, steps: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        for rank in range(WORKERS + (RIVALS[name] in ("rpc", "asp"))):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(name, rank, port, theirs, steps), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def round(self) -> None:
        """Have all steps made, and wait for the last worker."""
        for pipe in self._pipes:
            pipe.send(True)
        for pipe in self._pipes:
            pipe.recv()

    def end(self) -> None:
        """Let them go."""
        for pipe in self._pipes:
            pipe.send(False)
        for process in self._processes:
            process.join()


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = options("A parameter server, Hogwild, and a slow worker.", rounds=9)
    parser.add_argument("--steps", type=int, default=60, help="steps of a worker in a round")
    parser.add_argument(
        "--only", nargs="+", choices=RIVALS, default=[*RIVALS], help="these rivals, and no communication"
    )
    given = parser.parse_args()
    names = [name for name in RIVALS if name in (*given.only, "no communication")]
    targets = [target for target in TARGETS if {target.slow, target.fast} <= {*names}]
    os.environ["OMP_NUM_THREADS"] = "1"
    stores = {name: dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for name in names}
    # RPC makes a store of its own.
    ports = {name: store.port for name, store in stores.items()}
    stores.pop("torch rpc", None)
    rivals = {name: Rival(name, ports[name], given.steps) for name in names}
    cases: dict[str, Callable[[], None]] = {name: rival.round for name, rival in rivals.items()}
    seconds = interleave(cases, given.rounds)
    for rival in rivals.values():
        rival.end()
    title = f"{WORKERS} workers, batch {BATCH}, {given.steps} steps; slow: worker 1 by {SLOWDOWN}"
    return 0 if report(title, seconds, "no communication", targets, given.json) else 1


if __name__ == "__main__":
    sys.exit(main())
