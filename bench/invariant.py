"""The cost of bits that do not depend on the number of workers: a step of two workers with `--reduction invariant`.

Two processes on shared memory, one thread each, which share a global batch. All rivals live in them and take turns:

    ddp                   each worker's share in one part, the fast optimizer step
    ddp, micro-batches    the same in micro-batches: what smaller matrices cost
    ddp, readable         also with the readable optimizer step
    ddp, invariant        `--reduction invariant`: also sums along the tree of micro-batches
    onecopy, invariant    the same with one copy of the weights, of which each worker updates half

    python bench/invariant.py [--models mlp lenet large] [--batches 64 512] [--micro-batch 8] [--rounds 15] [--json]
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from common import interleave, options, report
from shoal import models, optim
from shoal.comm.group import Group
from shoal.config.sections.model import CrossEntropyConfig
from shoal.config.sections.optimizer import OptimizerConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.leaf_sums import LeafSums
from shoal.strategies.onecopy.onecopy import OneCopySync
from shoal.strategies.onecopy.settings import OneCopyConfig
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.strategy import Share
from shoal.strategies.update import Update
from step import MODELS, OPTIMIZERS, PAIR, WORKERS, Processes, Step, joined_pair, obey, work_alone

RIVALS = ["ddp", "ddp, micro-batches", "ddp, readable", "ddp, invariant", "onecopy, invariant"]


class Steps:
    """All rivals of one model and batch, on one worker."""

    def __init__(self, model: str, batch: int, micro_batch: int, optimizer: str, rank: int) -> None:
        self._config, self._batch, self._micro_batch = MODELS[model][0], batch, micro_batch
        fast: Any = OPTIMIZERS[optimizer][0]
        self._fast: OptimizerConfig = fast
        self._readable: OptimizerConfig = replace(fast, fast=False)
        draw = torch.Generator().manual_seed(rank)
        self._inputs = torch.randn(batch // WORKERS, 1, 28, 28, generator=draw)
        self._labels = torch.randint(10, (batch // WORKERS,), generator=draw)

    def rivals(self, group: Group) -> dict[str, Step]:
        """What two workers do together."""
        whole, micro = len(self._labels), self._micro_batch
        return {
            "ddp": self._step(group, whole, self._fast),
            "ddp, micro-batches": self._step(group, micro, self._fast),
            "ddp, readable": self._step(group, micro, self._readable),
            "ddp, invariant": self._step(group, micro, self._readable, along_tree=True),
            "onecopy, invariant": self._step(group, micro, self._readable, along_tree=True, one_copy=True),
        }

    def _step(
        self,
        group: Group,
        micro_batch: int,
        optimizer: OptimizerConfig,
        along_tree: bool = False,
        one_copy: bool = False,
    ) -> Step:
        model = models.build(self._config, (1, 28, 28), 10, seed=0)
        loss, span = CrossEntropyConfig(), SpanRecorder(HostClock())
        engine = build_engine("torch", model, loss, span)
        leaf_sums = LeafSums(model, engine.params, span) if along_tree else None
        layout = Whole(model, models.build_loss(loss), engine, span, leaf_sums=leaf_sums)
        update = Update(layout, lambda params: optim.build(optimizer, params))
        exchange = AllReduce()
        parts = SyncParts(layout, update, group, exchange, Guard(group, exchange, "stop"))
        strategy = OneCopySync(parts, OneCopyConfig()) if one_copy else Ddp(parts, DdpConfig())
        cuts = zip(self._inputs.split(micro_batch), self._labels.split(micro_batch), strict=True)
        batches = [Batch(inputs, labels, len(labels)) for inputs, labels in cuts]
        share = Share(batches, self._batch, len(self._labels))

        def step() -> Tensor:
            span.marks.clear()
            return strategy.step(share, 1e-3).loss

        return step


def work(rank: int, port: int, pipe: Connection) -> None:
    """One of the pair."""
    with joined_pair(rank, port) as groups:
        obey(pipe, lambda *given: Steps(*given, rank=rank).rivals(groups["shm"]))


def main() -> int:
    """Measure every model with every batch."""
    parser = options("A step of two workers with sums along one tree of micro-batches.", rounds=15)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which models")
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 512], help="global batch sizes")
    parser.add_argument("--micro-batch", type=int, default=8, help="samples of a leaf")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adam", help="which optimizer")
    given = parser.parse_args()
    torch.set_num_threads(1)
    processes = Processes(work, work_alone)
    for model in given.models:
        for batch in given.batches:
            processes.ask(PAIR, "make", model, batch, given.micro_batch, given.optimizer)
            count = max(1, MODELS[model][1] * 64 // batch)

            def running(name: str, count: int = count) -> Callable[[], None]:
                return lambda: processes.ask(PAIR, "run", name, count)

            seconds = interleave({name: running(name) for name in RIVALS}, given.rounds)
            per_step = {name: [each / count for each in rounds] for name, rounds in seconds.items()}
            sizes = f"batch {batch} in micro-batches of {given.micro_batch}"
            title = f"{model}, {given.optimizer}, {WORKERS} workers, {sizes}"
            report(title, per_step, "ddp", as_json=given.json)
    processes.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
