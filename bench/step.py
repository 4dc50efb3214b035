"""One training step of two workers: ours, torch's DistributedDataParallel, one process, and no communication at all.

Two processes, one thread each, 64 samples per worker. All rivals live in the same two processes and take turns:

    no communication   each worker trains alone: what communication costs is what lies above this
    two barriers       the same, and the workers wait for each other twice per step: what no exchange can be faster than
    torch              torch.nn.parallel.DistributedDataParallel on gloo, as it comes
    torch, tuned       the same with static_graph and gradient_as_bucket_view
    shm, gloo          shoal.DistributedDataParallel in the same loop, on shared memory and on gloo
    ddp shm, ddp gloo  `--strategy ddp`: our own loop's step, which also sums the losses and looks for bad numbers
    onecopy            `--strategy onecopy`: one copy of the weights in shared memory, each worker updates its slice
    one process        a third process, with both threads and all 128 samples
    single, ddp of 1   the strategies `single`, and `ddp` in a world of one, on one worker with one thread

Threads are set in the environment before torch is there, as launchers do: on ARM `torch.set_num_threads` alone leaves
part of the layers with as many threads as there are cores, and two such workers get in each other's way.

Optimizers are fused for everyone.

    python bench/step.py [--models mlp lenet large] [--optimizers sgd adam] [--rounds 31] [--json]
"""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from common import Target, interleave, options, report
from shoal import models, optim
from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.comm.over_torch.checked import join_torch
from shoal.comm.shared_memory.group import SharedMemoryGroup
from shoal.comm.traced import traced
from shoal.config.sections.model import CrossEntropyConfig, LenetConfig, MlpConfig, ModelConfig
from shoal.config.sections.optimizer import AdamConfig, OptimizerConfig, SgdConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.onecopy.onecopy import OneCopySync
from shoal.strategies.onecopy.settings import OneCopyConfig
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.strategy import Share, Strategy
from shoal.strategies.update import Update

WORKERS = 2
BATCH = 64

MODELS: dict[str, tuple[ModelConfig, int]] = {
    "mlp": (MlpConfig(), 40),
    "lenet": (LenetConfig(), 20),
    "large": (MlpConfig(hidden=(2048, 2048)), 4),
}
"""Each with the steps of one round: enough that asking for them takes no part of the time."""

OPTIMIZERS: dict[str, tuple[OptimizerConfig, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": (SgdConfig(lr=1e-3, momentum=0.9), lambda params: torch.optim.SGD(params, 1e-3, 0.9, fused=True)),
    "adam": (AdamConfig(lr=1e-4), lambda params: torch.optim.Adam(params, 1e-4, fused=True)),
}
"""Ours for the strategies; torch's own for every loop that is written out."""

FASTER_THAN_TORCH = {"mlp": 1.8, "lenet": 1.05, "large": 1.25}


ONECOPY_FASTER_THAN_TORCH = {"mlp": 2.0, "lenet": 1.1, "large": 1.3}


def targets(model: str, optimizer: str) -> list[Target]:
    """What is promised of this model."""
    faster = FASTER_THAN_TORCH[model]
    one_copy = 1.2 if (model, optimizer) == ("large", "sgd") else 1.1
    return [
        Target("torch", "shm", at_least=faster),
        Target("torch, tuned", "shm", at_least=faster),
        Target("shm", "no communication", at_most=1.25),
        Target("ddp shm", "no communication", at_most=1.25),
        Target("gloo", "torch", at_most=1.10),
        Target("ddp gloo", "torch", at_most=1.10),
        Target("ddp of 1", "single", at_most=1.03),
        Target("onecopy", "no communication", at_most=one_copy),
        Target("torch", "onecopy", at_least=ONECOPY_FASTER_THAN_TORCH[model]),
    ]


Step = Callable[[], object]


class Rivals:
    """All rivals of one model and optimizer, on one worker."""

    def __init__(self, model: str, optimizer: str, rank: int = 0) -> None:
        self._config = MODELS[model][0]
        self._ours, self._torchs = OPTIMIZERS[optimizer]
        draw = torch.Generator().manual_seed(rank)
        self._inputs = torch.randn(BATCH * WORKERS, 1, 28, 28, generator=draw)
        self._labels = torch.randint(10, (BATCH * WORKERS,), generator=draw)

    def of_a_pair(self, groups: Mapping[str, Group]) -> dict[str, Step]:
        """What two workers do together, and `single` and `ddp` of one, while the other rests."""
        torch_ddp = nn.parallel.DistributedDataParallel
        return {
            "no communication": self._loop(self._model()),
            "two barriers": self._waiting(groups["shm"]),
            "torch": self._loop(torch_ddp(self._model())),
            "torch, tuned": self._loop(
                torch_ddp(self._model(), static_graph=True, gradient_as_bucket_view=True)
            ),
            "shm": self._loop(DistributedDataParallel(self._model(), groups["shm"])),
            "gloo": self._loop(DistributedDataParallel(self._model(), groups["gloo"])),
            "ddp shm": self._strategy(groups["shm"]),
            "ddp gloo": self._strategy(groups["gloo"]),
            "onecopy": self._strategy(groups["shm"], lambda parts: OneCopySync(parts, OneCopyConfig())),
            "single": self._strategy(None),
            "ddp of 1": self._strategy(alone()),
        }

    def of_one(self) -> dict[str, Step]:
        """What one process does that has all cores."""
        return {"one process": self._loop(self._model(), BATCH * WORKERS)}

    def _model(self) -> nn.Module:
        return models.build(self._config, (1, 28, 28), 10, seed=0)

    def _loop(self, model: nn.Module, num_samples: int = BATCH) -> Step:
        """A step as one writes it."""
        optimizer = self._torchs(model.parameters())
        inputs, labels = self._inputs[:num_samples], self._labels[:num_samples]

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

        return step

    def _waiting(self, group: Group) -> Step:
        """A step of one's own, after which the workers wait for each other as often as `onecopy` has to."""
        train = self._loop(self._model())

        def step() -> None:
            train()
            group.barrier().wait()
            group.barrier().wait()

        return step

    def _strategy(
        self,
        group: Group | None,
        sync: Callable[[SyncParts], Strategy] = lambda parts: Ddp(parts, DdpConfig()),
    ) -> Step:
        """A step of ours; without a group, of `single`."""
        model, loss, span = self._model(), CrossEntropyConfig(), SpanRecorder(HostClock())
        engine = build_engine("torch", model, loss, span)
        layout = Whole(model, models.build_loss(loss), engine, span)
        update = Update(layout, lambda params: optim.build(self._ours, params))
        exchange, counted = AllReduce(), traced(group or alone())
        parts = SyncParts(layout, update, counted, exchange, Guard(counted, exchange, "stop"))
        strategy = Sync(parts) if group is None else sync(parts)
        batch = Batch(self._inputs[:BATCH], self._labels[:BATCH], BATCH)
        share = Share([batch], BATCH * strategy.data_size, BATCH)

        def step() -> Tensor:
            span.marks.clear()
            return strategy.step(share, 1e-3).loss

        return step


@contextmanager
def joined_pair(rank: int, port: int) -> Generator[dict[str, Group]]:
    """Torch's default group of the pair on gloo, and ours on shared memory and on gloo."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORKERS)
    store: Any = dist.distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateUsage]
    yield {
        "shm": SharedMemoryGroup.join(dist.PrefixStore("shm", store), rank, WORKERS),
        "gloo": join_torch(dist.PrefixStore("gloo", store), rank, WORKERS),
    }
    dist.destroy_process_group()


def work(rank: int, port: int, pipe: Connection) -> None:
    """One of the pair."""
    with joined_pair(rank, port) as groups:
        obey(pipe, lambda *names: Rivals(*names, rank=rank).of_a_pair(groups))


def work_alone(pipe: Connection) -> None:
    """The process that has both cores."""
    obey(pipe, lambda *names: Rivals(*names).of_one())


def obey(pipe: Connection, make: Callable[..., dict[str, Step]]) -> None:
    """Make rivals when given a model, and run the one that is named, until the pipe says None."""
    rivals: dict[str, Step] = {}
    gc.disable()
    while (request := pipe.recv()) is not None:
        what, *names = request
        if what == "make":
            rivals = make(*names)
            gc.collect()
        else:
            (name, count) = names
            for _ in range(count):
                rivals[name]()
        pipe.send("done")


PAIR, RANK_0, THIRD = (0, 1), (0,), (2,)
WHO = {
    "no communication": PAIR,
    "two barriers": PAIR,
    "torch": PAIR,
    "torch, tuned": PAIR,
    "shm": PAIR,
    "gloo": PAIR,
    "ddp shm": PAIR,
    "ddp gloo": PAIR,
    "onecopy": PAIR,
    "one process": THIRD,
    "single": RANK_0,
    "ddp of 1": RANK_0,
}
"""Which processes run a rival; the others rest."""


class Processes:
    """The pair and the third, as the benchmark sees them."""

    def __init__(self, pair: Callable[..., None], third: Callable[..., None]) -> None:
        context = multiprocessing.get_context("spawn")
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = store.port
        del store  # only to find a free port
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        for place in (*PAIR, *THIRD):
            ours, theirs = context.Pipe()
            target, args = (pair, (place, port, theirs)) if place in PAIR else (third, (theirs,))
            os.environ["OMP_NUM_THREADS"] = str(1 if place in PAIR else WORKERS)
            process = context.Process(target=target, args=args, daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def ask(self, who: Sequence[int], *what: Any) -> None:
        """Have some do something, and wait until they have."""
        for place in who:
            self._pipes[place].send(what)
        for place in who:
            self._pipes[place].recv()

    def end(self) -> None:
        """Let them go."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


def main() -> int:
    """Measure every model with every optimizer; 1 when a target is missed."""
    parser = options("One training step of two workers: ours, torch's, one process, none.", rounds=31)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which models")
    parser.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS), help="which optimizers"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    processes = Processes(work, work_alone)
    met: list[bool] = []
    for model in given.models:
        for optimizer in given.optimizers:
            processes.ask((*PAIR, *THIRD), "make", model, optimizer)
            count = MODELS[model][1]

            def running(name: str, count: int = count) -> Callable[[], None]:
                return lambda: processes.ask(WHO[name], "run", name, count)

            seconds = interleave({name: running(name) for name in WHO}, given.rounds)
            per_step = {name: [each / count for each in rounds] for name, rounds in seconds.items()}
            title = f"{model}, {optimizer}, {WORKERS} workers with {BATCH} samples each"
            met.append(report(title, per_step, "no communication", targets(model, optimizer), given.json))
    processes.end()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
