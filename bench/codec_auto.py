"""`compressed:auto` against every fixed choice on four links: is a step within 5 % of the best one's?

The mlp of 5.8 M parameters and the two workers of `codec_link.py`, whose steps these are. On each link auto first makes
its choice; then auto and its candidates take turns. All have the same settings except for the exchange.

    sudo python bench/codec_auto.py [--links loopback 1000 100 20] [--rounds 5] [--simulated] [--json]

`--links`: rates in Mbit/s, or `loopback` for no limit. With `--simulated` our own simulation delays messages between
namespaces whose link has no limit. At 20 Mbit/s an uncompressed step takes ten seconds.
"""

import argparse
import os
import statistics
import sys

import torch

from codec_link import AS_WORKER, BATCH, MISSED, WORKERS, Rival, config_of, step_of
from common import Target, interleave, options, report
from netns import linked_pair
from shoal.comm.group import Group
from shoal.comm.join import join
from shoal.comm.links.shaped import Shaped, shaped
from shoal.comm.traced import traced
from shoal.config.conditions import Link
from shoal.config.sections.compression import CANDIDATES
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.strategies.exchange.auto import FIRST_STEPS, Auto
from shoal.training.build import build

LOOPBACK = "loopback"
LINKS = (LOOPBACK, "1000", "100", "20")
AUTO = "auto"
NEAR = 1.05
STEPS = 5
"""Of a round; one where a step takes seconds."""
SLOW_MBIT = 200.0


def rate_of(link: str) -> float | None:
    """Mbit/s; None without a limit."""
    return None if link == LOOPBACK else float(link)


def work(given: argparse.Namespace) -> int:
    """One of the two workers, on one link; rank 0 reports."""
    torch.set_num_threads(1)
    group = join(kind="gloo")
    rate = rate_of(given.link)
    if given.simulated and rate is not None:
        group = shaped(group, [Link(None, rate * 1e6)])
    met = measure(group, given, rate)
    group.barrier().wait()
    if isinstance(group, Shaped):
        group.finish()
    return 0 if met else MISSED


def measure(group: Group, given: argparse.Namespace, rate: float | None) -> bool:
    """Let auto choose, then time it and its candidates; whether it is near the best."""
    data = load(config_of("all_reduce").data)
    batch = data.batch(data.train, torch.arange(BATCH * WORKERS)[group.rank :: WORKERS])
    steps = 1 if rate is not None and rate < SLOW_MBIT else STEPS
    rivals: dict[str, Rival] = {}
    chosen = ""
    for name in (AUTO, *CANDIDATES):
        exchange = "all_reduce" if name == "none" else f"compressed:{name}"
        run = build(config_of(exchange), torch.device("cpu"), traced(group))
        rivals[name] = Rival(run.model, step_of(run), group, batch, steps)
        if name == AUTO:
            for _ in range(FIRST_STEPS + 1):
                rivals[AUTO].step(batch)
            assert isinstance(run.exchange, Auto)
            chosen = run.exchange.chosen or "nothing"
    # The order of the rounds is drawn from a seed: the same on both workers.
    interleave(rivals, given.rounds, warm_up=1)
    seconds = {name: rival.seconds[1:] for name, rival in rivals.items()}
    best = min(CANDIDATES, key=lambda name: statistics.median(seconds[name]))
    link = "no limit" if rate is None else f"{rate:g} Mbit/s{', simulated' * given.simulated}"
    title = f"a step, {WORKERS} workers, {link}; auto chose {chosen}"
    if int(os.environ["RANK"]) == 0:
        return report(title, seconds, "none", [Target(AUTO, best, at_most=NEAR)], given.json)
    return True


def main() -> int:
    """As a worker: measure. Else: make each link in turn, and start the workers; 1 when auto is not near the best."""
    parser = options("compressed:auto against every fixed choice.", rounds=5)
    parser.add_argument("--links", nargs="+", default=LINKS, help="Mbit/s, or loopback (default: all four)")
    parser.add_argument("--simulated", action="store_true", help="our own simulation of the links")
    parser.add_argument("--link", default=LOOPBACK, help=argparse.SUPPRESS)
    parser.add_argument(AS_WORKER, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_worker:
        return work(given)
    # Before torch is there, as launchers do: see step.py.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a namespace has no names for its addresses
    codes: list[int] = []
    try:
        for link in given.links:
            with linked_pair(None if given.simulated else rate_of(link)) as pair:
                command = [sys.executable, __file__, AS_WORKER, *sys.argv[1:], "--link", link]
                codes.append(pair.run(command))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    failed = [code for code in codes if code not in (0, MISSED)]
    return failed[0] if failed else int(MISSED in codes)


if __name__ == "__main__":
    sys.exit(main())
