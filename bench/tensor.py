"""One training step of a model whose layers two workers divide: ours, torch's DTensor, and one process.

An mlp of four layers of width 2048 (two pairs of column and row), forward, backward and fused SGD. Both workers have
the same batch; two processes with one thread each. All rivals live in the same processes and take turns:

    one thread       one worker trains the whole model alone, while the other rests
    two threads      a third process does the same with both cores
    shm, gloo        shoal.tensor_parallel on shared memory and on gloo
    DTensor          torch.distributed.tensor.parallel: ColwiseParallel and RowwiseParallel on gloo, as it comes
    DTensor, local   the same, with fused SGD on each worker's local tensors: without DTensor's dispatch
    no communication each worker trains its parts without the sums: what communication costs is what lies above this

    python bench/tensor.py [--batches 64 256] [--rounds 31] [--json]
"""

import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from common import Target, interleave, options, report
from shoal import models
from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.config.sections.model import MlpConfig
from shoal.strategies.tensor.divide import tensor_parallel
from step import WORKERS, Processes, Step, joined_pair, obey

WIDTH = 2048
PLAN = {"fc1": "column", "fc2": "row", "fc3": "column", "fc4": "row"}
STEPS = {64: 4, 256: 2}
"""Steps of one round."""
FASTER_THAN_DTENSOR = {64: 1.15, 256: 1.0}


def targets(batch: int) -> list[Target]:
    """What is promised at this batch size."""
    faster = FASTER_THAN_DTENSOR[batch]
    return [
        Target("one thread", "shm", at_least=1.7),
        Target("DTensor", "shm", at_least=faster),
        Target("DTensor, local", "shm", at_least=faster),
    ]


def whole_model() -> nn.Module:
    """The mlp, the same on every worker."""
    return models.build(MlpConfig(hidden=(WIDTH, WIDTH, WIDTH)), (WIDTH,), WIDTH, seed=0)


def fused(params: Any) -> torch.optim.Optimizer:
    """Everybody's optimizer."""
    return torch.optim.SGD(params, 1e-3, fused=True)


class Rivals:
    """All rivals of one batch size, on one worker."""

    def __init__(self, batch: int) -> None:
        draw = torch.Generator().manual_seed(0)
        self._inputs = torch.randn(batch, WIDTH, generator=draw)
        self._labels = torch.randint(WIDTH, (batch,), generator=draw)

    def of_a_pair(self, groups: Mapping[str, Group]) -> dict[str, Step]:
        """What two workers do together, and what one does while the other rests."""
        silent = tensor_parallel(whole_model(), groups["shm"], PLAN)
        for layer in silent.children():
            if hasattr(layer, "_group"):
                vars(layer)["_group"] = alone()
        return {
            "one thread": self._step(whole_model()),
            "shm": self._step(tensor_parallel(whole_model(), groups["shm"], PLAN)),
            "gloo": self._step(tensor_parallel(whole_model(), groups["gloo"], PLAN)),
            # DTensor has no fused SGD.
            "DTensor": self._step(
                _dtensor_model(), lambda params: torch.optim.SGD(params, 1e-3, foreach=True)
            ),
            "DTensor, local": self._local_step(_dtensor_model()),
            "no communication": self._step(silent),
        }

    def of_one(self) -> dict[str, Step]:
        """What one process does that has all cores."""
        return {"two threads": self._step(whole_model())}

    def _step(self, model: nn.Module, make_optimizer: Callable[[Any], torch.optim.Optimizer] = fused) -> Step:
        optimizer = make_optimizer(model.parameters())

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(self._inputs), self._labels).backward()
            optimizer.step()

        return step

    def _local_step(self, model: nn.Module) -> Step:
        """The optimizer sees plain tensors, which share the memory of DTensor's."""
        whole = list(model.parameters())
        local = [nn.Parameter(_local(param)) for param in whole]
        optimizer = fused(local)

        def step() -> None:
            for param in whole:
                param.grad = None
            F.cross_entropy(model(self._inputs), self._labels).backward()
            for param, mine in zip(whole, local, strict=True):
                mine.grad = None if param.grad is None else _local(param.grad)
            optimizer.step()

        return step


def _local(tensor: Any) -> Tensor:
    return tensor.to_local().detach()


def _dtensor_model() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    cuts: dict[str, Any] = {
        name: ColwiseParallel() if cut == "column" else RowwiseParallel() for name, cut in PLAN.items()
    }
    return parallelize_module(whole_model(), init_device_mesh("cpu", (WORKERS,)), cuts)


def work(rank: int, port: int, pipe: Connection) -> None:
    """One of the pair."""
    with joined_pair(rank, port) as groups:
        obey(pipe, lambda batch: Rivals(batch).of_a_pair(groups))


def work_alone(pipe: Connection) -> None:
    """The process that has both cores."""
    obey(pipe, lambda batch: Rivals(batch).of_one())


PAIR, RANK_0, THIRD = (0, 1), (0,), (2,)
WHO = {
    "one thread": RANK_0,
    "two threads": THIRD,
    "shm": PAIR,
    "gloo": PAIR,
    "DTensor": PAIR,
    "DTensor, local": PAIR,
    "no communication": PAIR,
}
"""Which processes run a rival; the others rest."""


def main() -> int:
    """Measure every batch size; 1 when a target is missed."""
    parser = options("One training step of two workers that divide every layer.", rounds=31)
    parser.add_argument(
        "--batches", nargs="+", type=int, choices=STEPS, default=list(STEPS), help="batch sizes"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    processes = Processes(work, work_alone)
    met: list[bool] = []
    for batch in given.batches:
        processes.ask((*PAIR, *THIRD), "make", batch)
        count = STEPS[batch]

        def running(name: str, count: int = count) -> Callable[[], None]:
            return lambda: processes.ask(WHO[name], "run", name, count)

        seconds = interleave({name: running(name) for name in WHO}, given.rounds)
        per_step = {name: [each / count for each in rounds] for name, rounds in seconds.items()}
        title = f"four layers of {WIDTH}, batch {batch}, {WORKERS} workers"
        met.append(report(title, per_step, "one thread", targets(batch), given.json))
    processes.end()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
