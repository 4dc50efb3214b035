"""Compressed gradients over a slow link: steps of an mlp of 5.8 M parameters, two workers with 64 samples each.

Two processes, one thread each, in two network namespaces (`netns.py`), with a link of 100 Mbit/s between them. All
rivals are in the same two processes, and take turns:

    no communication   each worker trains alone
    torch              torch.nn.parallel.DistributedDataParallel on gloo
    torch, powersgd    the same with torch's own PowerSGD hook: error feedback and warm start, as ours
    all_reduce         `--strategy ddp` on gloo, uncompressed
    int8, sign, …      the same with `--exchange compressed:int8`, …; topk and dgc send 1 % of the elements

Compressed gradients, torch's and ours, go in one bucket: what is short costs latency, and each bucket costs that again.

With `--simulated` the namespaces have a link without limit, and our own simulation (`--link 0-1:100mbit`) delays the
messages of our rivals; torch's are left out. With `--accuracy` nothing is timed: each rival trains some epochs on
digits over a link without limit, and the table has its accuracy on the test set.

    sudo python bench/codec_link.py [--rate 100] [--powersgd-rank 2] [--rounds 5] [--only torch powersgd] [--json]
    sudo python bench/codec_link.py --simulated
    sudo python bench/codec_link.py --accuracy [--epochs 3]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn import functional as F

from common import Target, interleave, machine, options, report
from netns import linked_pair
from shoal.comm.group import Group
from shoal.comm.join import join
from shoal.comm.links.shaped import Shaped, shaped
from shoal.comm.traced import traced
from shoal.config.conditions import Link
from shoal.config.read import read
from shoal.config.schema import RunConfig
from shoal.data.dataset import Batch, DataSet
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.strategies.strategy import Share
from shoal.training.build import build, build_model
from shoal.training.run import Run

WORKERS, BATCH = 2, 64
LR, MOMENTUM = 0.02, 0.9
AS_WORKER = "--as-worker"
MISSED = 9
"""A worker's exit code for a target that was missed, as distinct from a failure."""

OURS = {
    "all_reduce": "all_reduce",
    "int8": "compressed:int8",
    "sign": "compressed:sign",
    "topk": "compressed:topk --exchange.ratio 0.01",
    "dgc": "compressed:dgc --exchange.ratio 0.01",
    "powersgd": "compressed:powersgd",
}
TORCHS = ("no communication", "torch", "torch, powersgd")
ONE_BUCKET_MIB = 50
DENSE = ("torch", "all_reduce")
"""Rivals that send all gradients: one step takes two seconds."""
TARGETS = [
    Target("torch", "powersgd", at_least=5.0),
    Target("torch, powersgd", "powersgd", at_least=1.15),
]

Step = Callable[[Batch], object]


@dataclass
class Rival:
    """One way to train, on one worker, with the times of its rounds."""

    model: nn.Module
    step: Step
    group: Group
    batch: Batch
    steps: int
    seconds: list[float] = field(default_factory=list[float])
    """Per step, of every round."""

    def __call__(self) -> None:
        """Train one round."""
        self.group.barrier().wait()
        start = time.perf_counter()
        for _ in range(self.steps):
            self.step(self.batch)
        self.seconds.append((time.perf_counter() - start) / self.steps)

    def accuracy(self, data: DataSet, epochs: int) -> float:
        """Train, each worker on its half of every batch; return the accuracy on the test set in per cent."""
        for epoch in range(epochs):
            order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(epoch))
            for start in range(0, len(order) - BATCH * WORKERS + 1, BATCH * WORKERS):
                mine = order[start : start + BATCH * WORKERS][self.group.rank :: WORKERS]
                self.step(data.batch(data.train, mine))
        tested = data.batch(data.test, torch.arange(len(data.test)))
        with torch.no_grad():
            correct = self.model(tested.inputs).argmax(1) == tested.labels
        return 100 * correct.double().mean().item()


class Rivals:
    """Makes rivals on one worker."""

    def __init__(self, group: Group, powersgd_rank: int) -> None:
        self._group, self._rank = group, powersgd_rank
        self.data = load(config_of("all_reduce").data)
        mine = torch.arange(BATCH * WORKERS)[group.rank :: WORKERS]
        self._batch = self.data.batch(self.data.train, mine)

    def make(self, name: str) -> Rival:
        """The rival of this name; all begin with the same weights."""
        step, model = self._ours(name) if name in OURS else self._torchs(name)
        return Rival(model, step, self._group, self._batch, steps=1 if name in DENSE else 5)

    def _ours(self, name: str) -> tuple[Step, nn.Module]:
        exchange = OURS[name] + f" --exchange.rank {self._rank}" * (name == "powersgd")
        if name not in DENSE:
            exchange += f" --sync.bucket_mib {ONE_BUCKET_MIB} --sync.first_bucket_mib {ONE_BUCKET_MIB}"
        # dgc has a momentum of its own, which replaces the optimizer's.
        momentum = f" --exchange.momentum {MOMENTUM} --optimizer.momentum 0" if name == "dgc" else ""
        run = build(config_of(exchange + momentum), torch.device("cpu"), traced(self._group))
        return step_of(run), run.model

    def _torchs(self, name: str) -> tuple[Step, nn.Module]:
        inner = wrapped = build_model(config_of("all_reduce"), self.data)
        if name == "torch":
            wrapped = nn.parallel.DistributedDataParallel(inner)
        elif name == "torch, powersgd":
            # With several buckets it fails on gloo: the hook issues collectives from callbacks, and those of two
            # buckets may come in another order on the other worker.
            wrapped = nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=ONE_BUCKET_MIB)
            state = PowerSGDState(None, self._rank, start_powerSGD_iter=2)
            wrapped.register_comm_hook(state, powerSGD_hook)
        optimizer = torch.optim.SGD(inner.parameters(), LR, MOMENTUM, fused=True)

        def step(batch: Batch) -> None:
            optimizer.zero_grad()
            F.cross_entropy(wrapped(batch.inputs), batch.labels).backward()
            optimizer.step()

        return step, inner


def step_of(run: Run) -> Step:
    """A step of our strategy on this worker's samples."""

    def step(batch: Batch) -> Tensor:
        run.span.marks.clear()
        run.training_clock.step += 1
        share = Share([batch], batch.num_samples * WORKERS, batch.num_samples)
        return run.strategy.step(share, LR).loss

    return step


def config_of(exchange: str) -> RunConfig:
    """The settings of our rivals with an exchange."""
    words = f"--model mlp --model.hidden 2048,2048 --data digits --optimizer sgd --lr {LR}"
    words += f" --optimizer.momentum {MOMENTUM} --strategy ddp --workers {WORKERS} --exchange {exchange}"
    return read(None, words.split())


def work(given: argparse.Namespace) -> int:
    """One of the two workers; rank 0 reports."""
    torch.set_num_threads(1)
    group = join(kind="gloo")
    address = f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 1}"
    dist.init_process_group("gloo", init_method=address, rank=group.rank, world_size=WORKERS)
    names: list[str] = given.only or [*TORCHS, *OURS]
    if given.simulated:
        group = shaped(group, [Link(None, given.rate * 1e6)])
        names = [name for name in names if name in OURS]
    rivals = Rivals(group, given.powersgd_rank)
    met = accuracies(rivals, names, given) if given.accuracy else times(rivals, names, given)
    group.barrier().wait()
    dist.destroy_process_group()
    if isinstance(group, Shaped):
        group.finish()
    return 0 if met else MISSED


def times(rivals: Rivals, names: Sequence[str], given: argparse.Namespace) -> bool:
    """Measure and report the time of a step; whether all targets are met."""
    made = {name: rivals.make(name) for name in names}
    # The order of the rounds is drawn from a seed: the same on both workers.
    interleave(made, given.rounds, warm_up=1)
    seconds = {name: rival.seconds[1:] for name, rival in made.items()}
    targets = [target for target in TARGETS if {target.slow, target.fast} <= seconds.keys()]
    link = f"{given.rate:g} Mbit/s{', simulated' * given.simulated}"
    title = f"a step, {WORKERS} workers, {link}, powersgd of rank {given.powersgd_rank}"
    if int(os.environ["RANK"]) == 0:
        return report(title, seconds, next(iter(seconds)), targets, given.json)
    return True


def accuracies(rivals: Rivals, names: Sequence[str], given: argparse.Namespace) -> bool:
    """Train with each rival, and report accuracies; whether our PowerSGD is within half a point of torch's DDP."""
    found = {name: rivals.make(name).accuracy(rivals.data, given.epochs) for name in names}
    base = found.get("torch")
    met = base is None or "powersgd" not in found or found["powersgd"] >= base - 0.5
    if int(os.environ["RANK"]) == 0:
        if given.json:
            print(json.dumps({"title": "accuracy", "machine": machine(), "accuracy": found, "met": met}))
        else:
            print(f"test accuracy after {given.epochs} epochs of digits   ({machine()})")
            for name, accuracy in found.items():
                print(f"  {name:18}{accuracy:7.2f} %")
    return met


def main() -> int:
    """As a worker: measure. Else: make the link, and start the workers; 1 when a target is missed."""
    parser = options("Compressed gradients over a slow link.", rounds=5)
    parser.add_argument("--rate", type=float, default=100.0, help="Mbit/s (default %(default)s)")
    parser.add_argument("--powersgd-rank", type=int, default=2, help="rank of PowerSGD (default %(default)s)")
    parser.add_argument("--only", nargs="+", choices=[*TORCHS, *OURS], help="some of the rivals")
    parser.add_argument("--simulated", action="store_true", help="our own simulation of the link")
    parser.add_argument(
        "--accuracy", action="store_true", help="train, and report accuracies instead of times"
    )
    parser.add_argument("--epochs", type=int, default=3, help="of --accuracy (default %(default)s)")
    parser.add_argument(AS_WORKER, action="store_true", help="this process is one of the workers")
    given = parser.parse_args()
    if given.as_worker:
        return work(given)
    # Before torch is there, as launchers do: see step.py.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a namespace has no names for its addresses
    try:
        with linked_pair(None if given.simulated or given.accuracy else given.rate) as pair:
            code = pair.run([sys.executable, __file__, AS_WORKER, *sys.argv[1:]])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 1 if code == MISSED else code


if __name__ == "__main__":
    sys.exit(main())
