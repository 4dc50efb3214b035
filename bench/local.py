"""Local SGD over a slow link: lenet, two workers with 64 samples each, averaging every 20 steps over 20 Mbit/s.

All rivals are `--strategy local` on the same two processes, and take turns:

    no communication   the workers never average: what they compute, and nothing else
    blocking           all weights every 20 steps; the workers wait for them
    overlapped         the same, applied 19 steps later, while the workers go on (`overlap`)
    streaming          a quarter of the weights every 5 steps, applied 10 steps later (`fragments`, `overlap`)
    slower worker      not measured: no communication, in every interval the slower worker's. Who averages waits for
                       the other once per interval, and cannot be faster
    predicted          not measured: slower worker + bytes ÷ rate

A round trains one interval to fill the link, then the measured intervals: of every rival, as many averagings end within
the measured steps as begin there. It ends when the link is empty. Times and percentiles are means over both workers: a
worker that is faster waits for the other, and either may be the faster one. Each worker has a network namespace of its
own (`netns.py`), and the kernel limits the rate between them.

With `--simulated` our own simulation (`--link 0-1:20mbit`) delays the messages instead. It consists of threads of the
workers: with as many cores as workers, their time is taken from the training.

    sudo python bench/local.py [--intervals 4] [--rate 20] [--rounds 9] [--json]
    python bench/local.py --simulated
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

import shoal
from common import Target, interleave, options, report
from netns import linked_pair
from shoal.comm.group import Group
from shoal.comm.links.shaped import Shaped, shaped
from shoal.comm.traced import traced
from shoal.config.conditions import Link
from shoal.config.read import read
from shoal.errors import ConfigError, WorkerError
from shoal.launch import programs
from shoal.strategies.strategy import Share
from shoal.training.build import build

BATCH = 64
EVERY = 20
WORKERS = 2
AS_WORKER = "--as-worker"
MISSED = 9
"""A worker's exit code for a target that was missed, as distinct from a failure."""

RIVALS = {
    "no communication": "--strategy.every 1000000000",
    "blocking": f"--strategy.every {EVERY}",
    "overlapped": f"--strategy.every {EVERY} --strategy.overlap {EVERY - 1}",
    "streaming": f"--strategy.every {EVERY} --strategy.fragments 4 --strategy.overlap {EVERY // 2}",
}
TIMES = [
    Target("blocking", "predicted", at_least=0.97),
    Target("blocking", "predicted", at_most=1.03),
    Target("no communication", "overlapped", at_least=0.95),
]
PEAKS = [Target("streaming", "no communication", at_most=1.2)]


@dataclass
class Rival:
    """One way to train, on one worker, with the times of its rounds."""

    step: Callable[[], object]
    group: Group
    intervals: int
    steps: list[list[float]] = field(default_factory=list[list[float]])
    """Seconds of the measured steps of every round."""

    def __call__(self) -> None:
        """Train one round."""
        self.group.barrier().wait()
        for _ in range(EVERY):
            self.step()
        ends = [time.perf_counter()]
        for _ in range(self.intervals * EVERY):
            self.step()
            ends.append(time.perf_counter())
        self.steps.append([end - start for start, end in itertools.pairwise(ends)])
        self.group.barrier().wait()  # behind the averages that are still on their way

    def of_all(self) -> Tensor:
        """Seconds of every worker, round, interval and step. A collective."""
        mine = torch.tensor(self.steps[1:], dtype=torch.float64).view(-1, self.intervals, EVERY)
        found = torch.empty(WORKERS, *mine.shape, dtype=torch.float64)
        self.group.all_gather(found, mine).wait()
        return found


def made(flags: str, group: Group, intervals: int) -> tuple[Rival, int]:
    """A rival, and the bytes of all weights."""
    words = f"--model lenet --optimizer sgd --lr 0.01 --strategy local {flags}"
    config = read(None, words.split())
    config = replace(config, launch=replace(config.launch, workers=WORKERS))
    run = build(config, torch.device("cpu"), traced(group))
    mine = torch.arange(BATCH * WORKERS)[group.rank :: WORKERS]
    share = Share([run.data.batch(run.data.train, mine)], BATCH * WORKERS, BATCH)

    def step() -> None:
        run.span.marks.clear()
        run.strategy.step(share, 0.01)

    model = [piece for piece in run.strategy.pieces() if piece.name.startswith("model.")]
    return Rival(step, group, intervals), sum(piece.tensor.nbytes for piece in model)


def work(given: argparse.Namespace) -> int:
    """One of the two workers; rank 0 reports."""
    torch.set_num_threads(1)
    group: Group = shoal.join(kind="gloo")
    if given.simulated:
        group = shaped(group, [Link(None, given.rate * 1e6)])
    rivals: dict[str, Rival] = {}
    num_bytes = 0
    for name, flags in RIVALS.items():
        rivals[name], num_bytes = made(flags, group, given.intervals)
    # The order of the rounds is drawn from a seed: the same on every worker.
    interleave(rivals, given.rounds, warm_up=1)
    steps = {name: rival.of_all() for name, rival in rivals.items()}
    met = group.rank != 0 or reported(steps, num_bytes, given)
    group.barrier().wait()
    if isinstance(group, Shaped):
        group.finish()
    return 0 if met else MISSED


def reported(steps: Mapping[str, Tensor], num_bytes: int, given: argparse.Namespace) -> bool:
    """Report the time of a round and the 95th percentile of its steps; whether all targets are met."""
    seconds = {name: each.sum((2, 3)).mean(0).tolist() for name, each in steps.items()}
    # Two workers all-reduce n bytes by sending n bytes each.
    moving = given.intervals * 8 * num_bytes / (given.rate * 1e6)
    # Before an averaging, the faster worker waits for the slower one.
    slower = steps["no communication"].sum(3).amax(0).sum(1)
    seconds["slower worker"] = slower.tolist()
    seconds["predicted"] = (slower + moving).tolist()
    peaks = {name: each.flatten(2).quantile(0.95, 2).mean(0).tolist() for name, each in steps.items()}
    link = f"{WORKERS} workers over {given.rate:g} Mbit/s{', simulated' * given.simulated}"
    title = f"{given.intervals * EVERY} steps of lenet, {link}, {num_bytes:,} bytes every {EVERY} steps"
    met = report(title, seconds, "no communication", TIMES, given.json)
    return report(f"95th percentile of a step, {link}", peaks, "no communication", PEAKS, given.json) and met


def main() -> int:
    """As a worker: measure. Else: make the link, and start the workers; 1 when a target is missed."""
    parser = options("Local SGD over a slow link.", rounds=9)
    parser.add_argument(
        "--intervals", type=int, default=4, help="measured intervals of a round (default %(default)s)"
    )
    parser.add_argument(
        "--rate", type=float, default=20.0, help="the link's rate in Mbit/s (default %(default)s)"
    )
    parser.add_argument("--simulated", action="store_true", help="our own simulation of the link")
    parser.add_argument(AS_WORKER, action="store_true", help="this process is one of the workers")
    given = parser.parse_args()
    if given.as_worker:
        return work(given)
    words = [AS_WORKER, *sys.argv[1:]]
    try:
        return by_simulation(words) if given.simulated else over_a_link(given.rate, words)
    except ConfigError as error:
        print(f"{error} Or simulate the link: --simulated.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def by_simulation(words: list[str]) -> int:
    """Start two workers that simulate the link."""
    try:
        programs.by_processes(__file__, words, WORKERS, group="gloo")
    except WorkerError as error:
        if error.exit_code != MISSED:
            raise
        return 1
    return 0


def over_a_link(rate_mbit: float, words: list[str]) -> int:
    """Start two workers with a real link between them."""
    # Before torch is there, as launchers do: see step.py.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a namespace has no names for its addresses
    with linked_pair(rate_mbit) as pair:
        code = pair.run([sys.executable, __file__, *words])
    return 1 if code == MISSED else code


if __name__ == "__main__":
    raise SystemExit(main())
