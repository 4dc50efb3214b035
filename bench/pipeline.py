"""One step of a pipeline of two workers: ours, torch's, one process, and the bound of the schedule itself.

Two processes, one thread each; a 6-layer mlp of width 1024 in two equal stages, batch 256, 8 micro-batches, forward and
backward. All rivals live in the same two processes and take turns:

    shm, gloo              shoal.Pipeline with 1F1B, on shared memory and on gloo
    shm once, gloo once    the same with weight gradients once per step
    zero-bubble            shoal.Pipeline with ZB-H1 on shared memory
    torch                  torch.distributed.pipelining.Schedule1F1B on gloo, as it comes
    bound, bound once      the schedule's ideal timeline with the times that each action takes while both stages compute
    one thread, two        one process with the whole model and the whole batch

The bound is computed, not run: each stage's actions are timed in the rounds of `shm` themselves, so the times include
what two busy cores do to each other.

    python bench/pipeline.py [--rounds 31] [--width 1024] [--batch 256] [--microbatches 8] [--json]
"""

import gc
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from common import Target, interleave, options, report
from shoal.comm.group import Group
from shoal.comm.over_torch.checked import join_torch
from shoal.comm.shared_memory.group import SharedMemoryGroup
from shoal.strategies.pipeline.library import Pipeline
from shoal.strategies.pipeline.schedules import build, with_weights_once
from shoal.strategies.pipeline.timing import StageTimes, timeline

WORKERS, LAYERS = 2, 6
STEPS = 3
"""Steps of one round."""

TARGETS = [
    Target("bound", "shm", at_least=0.9),
    Target("torch", "shm", at_least=1.05),
    Target("torch", "shm once", at_least=1.25),
]

Step = Callable[[], object]


def network(width: int) -> nn.Sequential:
    """Six linear layers with ReLU between; the seventh module, the third ReLU, ends the first half."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def data(width: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets."""
    draw = torch.Generator().manual_seed(1)
    return torch.randn(batch, width, generator=draw), torch.randn(batch, width, generator=draw)


def of_a_pair(
    rank: int, groups: dict[str, Group], width: int, batch: int, microbatches: int
) -> dict[str, Step]:
    """What two workers do together."""
    inputs, targets = data(width, batch)

    def ours(group: Group, schedule: str = "1f1b", once: bool = False) -> Step:
        pipe = Pipeline(
            network(width),
            group,
            loss=F.mse_loss,
            schedule=schedule,
            microbatches=microbatches,
            cut=[str(LAYERS)],
            weight_gradients_once=once,
        )

        def step() -> list[Any]:
            pipe.zero_grad()
            pipe.step(inputs, targets)
            return pipe.marks

        return step

    return {
        "shm": ours(groups["shm"]),
        "shm once": ours(groups["shm"], once=True),
        "zero-bubble": ours(groups["shm"], "zero-bubble"),
        "gloo": ours(groups["gloo"]),
        "gloo once": ours(groups["gloo"], once=True),
        "torch": torchs(rank, width, microbatches, inputs, targets),
    }


def torchs(rank: int, width: int, microbatches: int, inputs: torch.Tensor, targets: torch.Tensor) -> Step:
    """Torch's own pipeline on gloo."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    part = network(width)[:LAYERS] if rank == 0 else network(width)[LAYERS:]
    example = inputs[: len(inputs) // microbatches]
    stage = PipelineStage(part, rank, WORKERS, torch.device("cpu"), input_args=(example,))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=F.mse_loss)

    def step() -> None:
        part.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=[])

    return step


def of_one(width: int, batch: int) -> dict[str, Step]:
    """The whole model in one process, with one thread and with two."""
    model, (inputs, targets) = network(width), data(width, batch)

    def with_threads(threads: int) -> Step:
        def step() -> None:
            torch.set_num_threads(threads)
            model.zero_grad()
            F.mse_loss(model(inputs), targets).backward()

        return step

    return {"one thread": with_threads(1), "two threads": with_threads(2)}


def work(rank: int, port: int, sizes: Sequence[int], pipe: Connection) -> None:
    """One of the pair, or (rank 2) the process that is alone."""
    if rank == WORKERS:
        _obey(pipe, of_one(*sizes[:2]))
        return
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORKERS)
    store: Any = dist.distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateUsage]
    groups: dict[str, Group] = {
        "shm": SharedMemoryGroup.join(dist.PrefixStore("shm", store), rank, WORKERS),
        "gloo": join_torch(dist.PrefixStore("gloo", store), rank, WORKERS),
    }
    _obey(pipe, of_a_pair(rank, groups, *sizes))
    dist.destroy_process_group()


def _obey(pipe: Connection, rivals: dict[str, Step]) -> None:
    """Run the rival that is named; answer with the times of its actions."""
    gc.disable()
    pipe.send("ready")
    while (name := pipe.recv()) is not None:
        marks: list[list[tuple[str, float]]] = []
        for _ in range(STEPS):
            found = rivals[name]()
            if isinstance(found, list):
                marks.append([(action, (end - start) / 1e9) for action, _, start, end in found])
        pipe.send(marks)


class Processes:
    """The pair and the third, as the benchmark sees them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        context = multiprocessing.get_context("spawn")
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = store.port
        del store  # only to find a free port
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        self.times: dict[str, list[dict[str, list[float]]]] = {}
        """Of each rival of the pair, per stage: the seconds of every action."""
        for rank in range(WORKERS + 1):
            ours, theirs = context.Pipe()
            os.environ["OMP_NUM_THREADS"] = str(1 if rank < WORKERS else WORKERS)
            process = context.Process(target=work, args=(rank, port, sizes, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def run(self, name: str) -> None:
        """One round of a rival."""
        who = (WORKERS,) if "thread" in name else range(WORKERS)
        for place in who:
            self._pipes[place].send(name)
        found = self.times.setdefault(name, [{} for _ in range(WORKERS)])
        for place in who:
            for step in self._pipes[place].recv():
                for action, seconds in step:
                    found[place].setdefault(action, []).append(seconds)

    def end(self) -> None:
        """Let them go."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


def bound(times: Sequence[dict[str, list[float]]], microbatches: int, once: bool) -> float:
    """The makespan of 1F1B with these times of actions, if messages took no time."""

    def median(stage: dict[str, list[float]], kind: str) -> float:
        found = [
            each
            for action, values in stage.items()
            if action[0] == kind and action != "W*"
            for each in values
        ]
        return statistics.median(found) if found else 0.0

    schedule = build("1f1b", WORKERS, microbatches)
    each = [
        StageTimes(
            forward=median(stage, "F"),
            backward=median(stage, "B"),
            backward_input=median(stage, "I"),
            backward_weight_all=statistics.median(stage.get("W*", [0.0])),
        )
        for stage in times
    ]
    return timeline((with_weights_once(schedule) if once else schedule).rows, each).makespan


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = options(
        "One step of a pipeline of two workers: ours, torch's, one process, the bound.", rounds=31
    )
    parser.add_argument("--width", type=int, default=1024, help="of each of the 6 layers")
    parser.add_argument("--batch", type=int, default=256, help="samples of a step")
    parser.add_argument("--microbatches", type=int, default=8, help="parts of the batch")
    given = parser.parse_args()
    torch.set_num_threads(1)
    processes = Processes((given.width, given.batch, given.microbatches))
    names = ["shm", "shm once", "zero-bubble", "gloo", "gloo once", "torch", "one thread", "two threads"]

    def running(name: str) -> Callable[[], None]:
        return lambda: processes.run(name)

    seconds = interleave({name: running(name) for name in names}, given.rounds)
    per_step = {name: [each / STEPS for each in rounds] for name, rounds in seconds.items()}
    per_step["bound"] = [bound(processes.times["shm"], given.microbatches, once=False)] * given.rounds
    per_step["bound once"] = [
        bound(processes.times["shm once"], given.microbatches, once=True)
    ] * given.rounds
    processes.end()
    title = (
        f"6 layers of width {given.width}, batch {given.batch}, {given.microbatches} micro-batches, 2 workers"
    )
    return 0 if report(title, per_step, "shm", TARGETS, given.json) else 1


if __name__ == "__main__":
    sys.exit(main())
