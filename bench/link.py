"""What simulated links (`--link`) take beside the time of the wire: messages through shared memory, and over gloo.

Two processes with one thread each sum 109,394 floats (437,576 bytes; lab optimise's network) around a ring, ten times
per round. *wire* sleeps as long as the link needs for these bytes: the time that a perfect simulation would take.

    python bench/link.py [--rounds 15] [--json]
"""

import multiprocessing
import sys
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from common import Target, interleave, options, report
from shoal.comm.links.shaped import shaped
from shoal.comm.over_torch.checked import join_torch
from shoal.comm.shared_memory.group import SharedMemoryGroup
from shoal.config.conditions import Link

WORKERS, NUMEL, SUMS = 2, 109_394, 10
RATES = {"1 Gbit/s": 1e9, "100 Mbit/s": 1e8}
CARRIERS = {"shm": SharedMemoryGroup.join, "gloo": join_torch}
TARGETS = [Target(f"{rate}, shm", f"{rate}, wire", at_most=1.25) for rate in RATES]


def work(rank: int, port: int, pipe: Connection) -> None:
    """One process: takes part in the sums of every case that it is asked for."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    groups = {
        f"{rate}, {carrier}": shaped(
            join(dist.PrefixStore(f"{rate} {carrier}", store), rank, WORKERS), [Link(None, RATES[rate])]
        )
        for rate in RATES
        for carrier, join in CARRIERS.items()
    }
    buffer = torch.zeros(NUMEL)
    while (case := pipe.recv()) is not None:
        for _ in range(SUMS):
            groups[case].all_reduce(buffer).wait()
        pipe.send("done")


def main() -> int:
    """Measure; 1 when a target is missed."""
    given = options("What simulated links take beside the time of the wire.", rounds=15).parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    pipes: list[Any] = []
    for rank in range(WORKERS):
        ours, theirs = context.Pipe()
        context.Process(target=work, args=(rank, store.port, theirs), daemon=True).start()
        pipes.append(ours)

    def sums(case: str) -> None:
        for pipe in pipes:
            pipe.send(case)
        for pipe in pipes:
            pipe.recv()

    cases = {
        f"{rate}, {carrier}": partial(sums, f"{rate}, {carrier}") for rate in RATES for carrier in CARRIERS
    }
    # Around a ring of two, each worker sends half of the bytes twice.
    cases |= {
        f"{rate}, wire": partial(time.sleep, SUMS * 8 * 4 * NUMEL / bits_per_s)
        for rate, bits_per_s in RATES.items()
    }
    seconds = interleave(cases, given.rounds)
    for pipe in pipes:
        pipe.send(None)
    title = f"{SUMS} all-reduces of {4 * NUMEL:,} bytes, {WORKERS} workers"
    return 0 if report(title, seconds, "1 Gbit/s, wire", TARGETS, given.json) else 1


if __name__ == "__main__":
    sys.exit(main())
