"""Local SGD over a slow link: lenet, two workers with 64 samples each, averaging every 20 steps over 20 Mbit/s.

All rivals are `--strategy local` on the same two processes, and take turns:

    no communication   the workers never average: what they compute, and nothing else
    blocking           all weights every 20 steps; the workers wait for them
    overlapped         the same, applied 19 steps later, while the workers go on (`overlap`)
    streaming          a quarter of the weights every 5 steps, applied 10 steps later (`fragments`, `overlap`)
    predicted          not measured: no communication + bytes ÷ rate for every averaging

A round trains one interval to fill the link, then the measured intervals: of every rival, as many averagings end within
the measured steps as begin there. It ends when the link is empty. Links are simulated by threads of the workers: with
as many cores as workers, their time is taken from the training.

    python bench/local.py [--intervals 4] [--rate 20] [--rounds 9] [--json]
"""

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

import shoal
from common import Target, interleave, options, report
from shoal.comm.group import Group
from shoal.comm.links.shaped import shaped
from shoal.comm.traced import traced
from shoal.config.conditions import Link
from shoal.config.read import read
from shoal.errors import WorkerError
from shoal.launch import programs
from shoal.parallel.strategy import Share
from shoal.train.build import build

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
    seconds: list[float] = field(default_factory=list[float])
    """Of the measured steps of every round."""
    peaks: list[float] = field(default_factory=list[float])
    """The 95th percentile of the steps of every round."""

    def __call__(self) -> None:
        """Train one round."""
        self.group.barrier().wait()
        for _ in range(EVERY):
            self.step()
        ends = [time.perf_counter()]
        for _ in range(self.intervals * EVERY):
            self.step()
            ends.append(time.perf_counter())
        self.seconds.append(ends[-1] - ends[0])
        steps = [end - start for start, end in itertools.pairwise(ends)]
        self.peaks.append(statistics.quantiles(steps, n=20)[-1])
        self.group.barrier().wait()  # behind the averages that are still on their way


def made(flags: str, group: Group, intervals: int) -> tuple[Rival, int]:
    """A rival, and the bytes of all weights."""
    words = f"--model lenet --optimizer sgd --lr 0.01 --strategy local {flags}"
    config = read(None, words.split())
    config = replace(config, launch=replace(config.launch, workers=WORKERS))
    built = build(config, torch.device("cpu"), traced(group))
    mine = torch.arange(BATCH * WORKERS)[group.rank :: WORKERS]
    share = Share([built.data.batch(built.data.train, mine)], BATCH * WORKERS, BATCH)

    def step() -> None:
        built.span.marks.clear()
        built.strategy.step(share, 0.01)

    model = [piece for piece in built.strategy.pieces() if piece.name.startswith("model.")]
    return Rival(step, group, intervals), sum(piece.tensor.nbytes for piece in model)


def work(intervals: int, rate_mbit: float, rounds: int, as_json: bool) -> int:
    """One of the two workers; rank 0 reports."""
    torch.set_num_threads(1)
    plain = shoal.join()
    group = shaped(plain, [Link(None, rate_mbit * 1e6)])
    rivals: dict[str, Rival] = {}
    num_bytes = 0
    for name, flags in RIVALS.items():
        rivals[name], num_bytes = made(flags, group, intervals)
    # The order of the rounds is drawn from a seed: the same on every worker.
    interleave(rivals, rounds, warm_up=1)
    met = True
    if group.rank == 0:
        seconds, peaks = (
            {name: getattr(each, what)[1:] for name, each in rivals.items()} for what in ("seconds", "peaks")
        )
        # Two workers all-reduce n bytes by sending n bytes each.
        moving = intervals * 8 * num_bytes / (rate_mbit * 1e6)
        seconds["predicted"] = [each + moving for each in seconds["no communication"]]
        link = f"{WORKERS} workers over {rate_mbit:g} Mbit/s"
        title = f"{intervals * EVERY} steps of lenet, {link}, {num_bytes:,} bytes every {EVERY} steps"
        met = report(title, seconds, "no communication", TIMES, as_json)
        met = report(f"95th percentile of a step, {link}", peaks, "no communication", PEAKS, as_json) and met
    group.barrier().wait()
    group.finish()
    return 0 if met else MISSED


def main() -> int:
    """As a worker: measure. Else: start the workers; 1 when a target is missed."""
    parser = options("Local SGD over a slow link.", rounds=9)
    parser.add_argument(
        "--intervals", type=int, default=4, help="measured intervals of a round (default %(default)s)"
    )
    parser.add_argument(
        "--rate", type=float, default=20.0, help="the link's rate in Mbit/s (default %(default)s)"
    )
    parser.add_argument(AS_WORKER, action="store_true", help="this process is one of the workers")
    args = parser.parse_args()
    if args.as_worker:
        return work(args.intervals, args.rate, args.rounds, args.json)
    try:
        programs.by_processes(__file__, [AS_WORKER, *sys.argv[1:]], WORKERS, group="gloo")
    except WorkerError as error:
        if error.exit_code != MISSED:
            raise
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
