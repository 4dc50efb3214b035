"""Model parallelism over torch's RPC: the course's lab as it is, and with micro-batches that overlap.

A driver and two stages, three processes with one thread each; the driver only waits, so two cores are enough:

    plain              one micro-batch: while one stage computes, the other waits
    4 micro-batches    the second stage computes a part while the first computes the next
    one process        the same model on one thread: what both pay for RPC lies above this

RPC can be started once in each process, so each rival has three of its own, which sleep while others run.

    python bench/rpc.py [--batch 1024] [--width 1024] [--layers 6] [--rounds 15] [--json]
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from common import Target, interleave, options, report
from shoal import models, optim
from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.comm.shared_memory.group import SharedMemoryGroup
from shoal.config.sections.model import CrossEntropyConfig, MlpConfig
from shoal.config.sections.optimizer import SgdConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.rpc.rpc import Rpc
from shoal.strategies.rpc.settings import RpcConfig
from shoal.strategies.strategy import Pause, Serving, Share, Strategy
from shoal.strategies.update import Update

WORKERS = 3
OUTPUTS = 10
MICROBATCHES = {"plain": 1, "4 micro-batches": 4}
TARGETS = [Target("plain", "4 micro-batches", at_least=1.15)]


def strategy_of(group: Group | None, width: int, layers: int, microbatches: int) -> Strategy:
    """`rpc`, or without a group `single`, with an mlp of so many layers."""
    model: nn.Module = models.build(MlpConfig(hidden=(width,) * (layers - 1)), (width,), OUTPUTS, seed=0)
    loss, span = CrossEntropyConfig(), SpanRecorder(HostClock())
    layout = Whole(model, models.build_loss(loss), build_engine("torch", model, loss, span), span)
    update = Update(layout, lambda params: optim.build(SgdConfig(lr=1e-3), params))
    exchange, members = AllReduce(), group or alone()
    parts = SyncParts(layout, update, members, exchange, Guard(members, exchange, "stop"))
    return Sync(parts) if group is None else Rpc(parts, RpcConfig(microbatches=microbatches))


def work(
    rank: int, port: int, pipe: Connection, width: int, layers: int, batch: int, microbatches: int
) -> None:
    """One worker of a rival; rank 0 makes a step whenever it is asked. No micro-batches: one process alone."""
    group: Group | None = None
    if microbatches:
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        group = SharedMemoryGroup.join(dist.PrefixStore(str(microbatches), store), rank, WORKERS)
    strategy = strategy_of(group, width, layers, microbatches)
    if strategy.serves:
        strategy.serve(Serving())
    else:
        draw = torch.Generator().manual_seed(0)
        inputs = torch.randn(batch, width, generator=draw)
        labels = torch.randint(OUTPUTS, (batch,), generator=draw)
        share = Share([Batch(inputs, labels, batch)], batch, batch)
        while pipe.recv():
            strategy.step(share, 1e-3)
            pipe.send("done")
        strategy.pause(Pause({}, is_end=True))
    strategy.close()


class Rival:
    """The processes of one rival."""

    def __init__(self, port: int, microbatches: int, *sizes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._processes: list[Any] = []
        for rank in range(WORKERS if microbatches else 1):
            arguments = rank, port, theirs, *sizes, microbatches
            self._processes.append(context.Process(target=work, args=arguments, daemon=True))
            self._processes[-1].start()

    def step(self) -> None:
        """Have a step made, and wait for it."""
        self._pipe.send(True)
        self._pipe.recv()

    def end(self) -> None:
        """Let them go."""
        self._pipe.send(False)
        for process in self._processes:
            process.join()


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = options("RPC with and without micro-batches that overlap.", rounds=15)
    parser.add_argument("--batch", type=int, default=1024, help="samples of a step")
    parser.add_argument("--width", type=int, default=1024, help="units of each layer")
    parser.add_argument("--layers", type=int, default=6, help="fully connected layers")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    sizes = given.width, given.layers, given.batch
    rivals = {name: Rival(store.port, count, *sizes) for name, count in MICROBATCHES.items()}
    rivals["one process"] = Rival(store.port, 0, *sizes)
    cases: dict[str, Callable[[], None]] = {name: rival.step for name, rival in rivals.items()}
    seconds = interleave(cases, given.rounds)
    for rival in rivals.values():
        rival.end()
    title = f"mlp of {given.layers} layers of {given.width} units, batch {given.batch}, rpc with {WORKERS} workers"
    return 0 if report(title, seconds, "plain", TARGETS, given.json) else 1


if __name__ == "__main__":
    sys.exit(main())
