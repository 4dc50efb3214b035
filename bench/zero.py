"""One training step of two workers whose state is divided: `zero` against torch's FSDP2 and ZeroRedundancyOptimizer.

Two processes, one thread each, 64 samples per worker. All rivals live in the same two processes and take turns:

    no communication   each worker trains alone, with the whole state
    ZeRO-1 of torch    DistributedDataParallel and ZeroRedundancyOptimizer on gloo
    FSDP2              torch's fully_shard on gloo, one unit per layer
    zero 1, 2, 3       `--strategy zero` on shared memory; stage 3 maps one copy of the weights
    zero 3 gloo        stage 3 on gloo: units are gathered, as on several machines

Optimizers are fused for everyone, except for SGD under FSDP2, where torch has no fused one.

    python bench/zero.py [--models large] [--optimizers sgd adam] [--rounds 15] [--json]
"""

import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F

from common import Target, interleave, options, report
from shoal import models, optim
from shoal.comm.group import Group
from shoal.config.sections.model import CrossEntropyConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.strategy import Share
from shoal.strategies.update import Update
from shoal.strategies.zero.settings import ZeroConfig
from shoal.strategies.zero.zero import Zero
from step import BATCH, MODELS, OPTIMIZERS, PAIR, WORKERS, Processes, Step, joined_pair, obey, work_alone

TORCHS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    "adam": (torch.optim.Adam, {"lr": 1e-4}),
}
"""Torch's optimizers with their options, as `ZeroRedundancyOptimizer` takes them."""
RIVALS = [
    "no communication",
    "ZeRO-1 of torch",
    "FSDP2",
    "zero 1",
    "zero 2",
    "zero 3",
    "zero 3 gloo",
]
TARGETS = [
    Target("ZeRO-1 of torch", "zero 1", at_least=1.3),
    Target("FSDP2", "zero 3", at_least=2.0),
    Target("FSDP2", "zero 3 gloo", at_least=1.0),
]


class Divided:
    """All rivals of one model and optimizer, on one worker."""

    def __init__(self, model: str, optimizer: str, rank: int) -> None:
        self._config = MODELS[model][0]
        self._ours, (self._kind, self._options) = OPTIMIZERS[optimizer][0], TORCHS[optimizer]
        draw = torch.Generator().manual_seed(rank)
        self._inputs = torch.randn(BATCH, 1, 28, 28, generator=draw)
        self._labels = torch.randint(10, (BATCH,), generator=draw)

    def rivals(self, groups: Mapping[str, Group]) -> dict[str, Step]:
        """What two workers do together."""
        alone, replica, shards = self._model(), self._model(), self._model()
        replicated = nn.parallel.DistributedDataParallel(replica)
        mesh = init_device_mesh("cpu", (WORKERS,))
        for layer in shards.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                fully_shard(layer, mesh=mesh)
        fully_shard(shards, mesh=mesh)
        kind: Any = self._kind
        fused: dict[str, Any] = {**self._options, "fused": True}
        # Torch has no fused SGD of FSDP2's tensors.
        of_shards = fused if kind is torch.optim.Adam else self._options
        steps = {
            "no communication": self._loop(alone, kind(alone.parameters(), **fused)),
            "ZeRO-1 of torch": self._loop(
                replicated, ZeroRedundancyOptimizer(replica.parameters(), kind, **fused)
            ),
            "FSDP2": self._loop(shards, kind(shards.parameters(), **of_shards)),
            "zero 3 gloo": self._strategy(groups["gloo"], 3),
        }
        for stage in (1, 2, 3):
            steps[f"zero {stage}"] = self._strategy(groups["shm"], stage)
        return steps

    def _model(self) -> nn.Module:
        return models.build(self._config, (1, 28, 28), 10, seed=0)

    def _loop(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
        """A step as one writes it."""

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(self._inputs), self._labels).backward()
            optimizer.step()

        return step

    def _strategy(self, group: Group, stage: int) -> Step:
        """A step of ours."""
        model, loss, span = self._model(), CrossEntropyConfig(), SpanRecorder(HostClock())
        engine = build_engine("torch", model, loss, span)
        layout = Whole(model, models.build_loss(loss), engine, span)
        update = Update(layout, lambda params: optim.build(self._ours, params))
        exchange = AllReduce()
        parts = SyncParts(layout, update, group, exchange, Guard(group, exchange, "stop"))
        strategy = Zero(parts, ZeroConfig(stage=stage))
        share = Share([Batch(self._inputs, self._labels, BATCH)], BATCH * WORKERS, BATCH)

        def step() -> Tensor:
            span.marks.clear()
            return strategy.step(share, 1e-3).loss

        return step


def work(rank: int, port: int, pipe: Connection) -> None:
    """One of the pair."""
    with joined_pair(rank, port) as groups:
        obey(pipe, lambda *names: Divided(*names, rank=rank).rivals(groups))


def main() -> int:
    """Measure every model with every optimizer; 1 when a target is missed."""
    parser = options("One training step of two workers whose state is divided: ours and torch's.", rounds=15)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["large"], help="which models")
    parser.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS), help="which optimizers"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    processes = Processes(work, work_alone)
    met: list[bool] = []
    for model in given.models:
        for optimizer in given.optimizers:
            processes.ask(PAIR, "make", model, optimizer)
            count = MODELS[model][1]

            def running(name: str, count: int = count) -> Callable[[], None]:
                return lambda: processes.ask(PAIR, "run", name, count)

            seconds = interleave({name: running(name) for name in RIVALS}, given.rounds)
            per_step = {name: [each / count for each in rounds] for name, rounds in seconds.items()}
            title = f"{model}, {optimizer}, {WORKERS} workers with {BATCH} samples each"
            met.append(report(title, per_step, "no communication", TARGETS, given.json))
    processes.end()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
