"""What `traced` costs of a training step: lenet, batch 64, two workers on shared memory, with tracing and without.

Both rivals train by the same strategy on the same group, in the same processes; one calls the group through `traced`.
`naive` makes a call for every parameter, more than any other strategy, so it pays most.

    python bench/traced.py [--workers 2] [--strategy naive] [--json]
"""

import sys
from collections.abc import Callable
from dataclasses import replace

import torch

import shoal
from common import Target, interleave, options, report
from shoal.comm.group import Group
from shoal.comm.traced import traced
from shoal.config.read import read
from shoal.config.schema import RunConfig
from shoal.errors import WorkerError
from shoal.launch import programs
from shoal.strategies.strategy import Share
from shoal.training.build import build

STEPS = 30
BATCH = 64
AS_WORKER = "--as-worker"
MISSED = 9
"""A worker's exit code for a target that was missed, as distinct from a failure."""


def training(config: RunConfig, group: Group) -> Callable[[], None]:
    """Some steps, each on this worker's share of the same batch."""
    # Without tracing, the group has no totals.
    run = build(config, torch.device("cpu"), group)  # pyright: ignore[reportArgumentType]
    mine = torch.arange(BATCH)[group.rank :: group.size]
    batch = run.data.batch(run.data.train, mine)

    def work() -> None:
        for step in range(STEPS):
            run.strategy.step(Share(iter([batch]), BATCH, len(mine)), run.lr(step))

    return work


def main() -> int:
    """As a worker: measure, and rank 0 prints. Else: start the workers."""
    parser = options("What tracing costs of a lenet step.", rounds=40)
    parser.add_argument("--workers", type=int, default=2, help="workers (default %(default)s)")
    parser.add_argument("--strategy", default="naive", help="how they agree (default %(default)s)")
    parser.add_argument(AS_WORKER, action="store_true", help="this process is one of the workers")
    args = parser.parse_args()
    if not args.as_worker:
        try:
            programs.by_processes(__file__, [AS_WORKER, *sys.argv[1:]], args.workers)
        except WorkerError as error:
            if error.exit_code != MISSED:
                raise
            return 1
        return 0
    torch.set_num_threads(1)
    group = shoal.join()
    config = read(None, ["--model", "lenet", "--strategy", args.strategy])
    config = replace(config, launch=replace(config.launch, workers=args.workers))
    # The order of the rounds is drawn from a seed: the same on every worker.
    cases = {"without": training(config, group), "traced": training(config, traced(group))}
    seconds = interleave(cases, args.rounds)
    met = True
    if group.rank == 0:
        target = Target(slow="traced", fast="without", at_most=1.02)
        title = f"{STEPS} steps of lenet, batch {BATCH}, {group.size} workers, {args.strategy}"
        met = report(title, seconds, "without", [target], args.json)
    group.barrier().wait()
    group.close()
    return 0 if met else MISSED


if __name__ == "__main__":
    raise SystemExit(main())
