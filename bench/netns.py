"""Two virtual nodes, joined by a link of a given rate: a slow network for programs that have no setting for one.

    sudo python bench/netns.py --rate 100 -- python train.py

`shoal train --launcher netns` has the same nodes. The kernel limits the rate between them, in each direction. The
command runs once in each, with the variables that torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
GLOO_SOCKET_IFNAME, and a SHOAL_SECRET. If one process fails, the other is stopped.
"""

import argparse
import contextlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.errors import ConfigError
from shoal.launch.netns.cluster import CARD, Node, VirtualCluster

PORT = 29517
GRACE_S = 5.0


@dataclass(frozen=True)
class LinkedPair:
    """Two nodes that a link joins."""

    nodes: Sequence[Node]

    def run(self, command: Sequence[str]) -> int:
        """Run a command in both; return 0, or the exit code of the first that failed."""
        secret = secrets.token_hex(32)
        workers: list[subprocess.Popen[Any]] = []
        try:
            for rank, node in enumerate(self.nodes):
                environment = os.environ | {
                    "RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": self.nodes[0].address,
                    "MASTER_PORT": str(PORT),
                    "GLOO_SOCKET_IFNAME": CARD,
                    "SHOAL_SECRET": secret,
                }
                workers.append(node.start(command, env=environment))
            while any(worker.poll() is None for worker in workers):
                if failed := _failed(workers):
                    return failed
                time.sleep(0.05)
            return _failed(workers)
        finally:
            _stop(workers)


def _failed(workers: Sequence[subprocess.Popen[Any]]) -> int:
    return next((worker.returncode for worker in workers if worker.returncode), 0)


def _stop(workers: Sequence[subprocess.Popen[Any]]) -> None:
    """End those that still run: ask first, and kill after a grace period."""
    running = [worker for worker in workers if worker.poll() is None]
    for worker in running:
        worker.terminate()
    for worker in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(GRACE_S)
            continue
        worker.kill()
        worker.wait()


@contextlib.contextmanager
def linked_pair(rate_mbit: float | None) -> Generator[LinkedPair]:
    """Make the nodes and the link, without a rate as fast as the machine; remove them at the end, whatever the end."""
    with VirtualCluster(2, None if rate_mbit is None else rate_mbit * 1e6) as cluster:
        yield LinkedPair(cluster.nodes)


def main() -> int:
    """Run a command in both nodes."""
    parser = argparse.ArgumentParser(description="Run a command in two virtual nodes that a link joins.")
    parser.add_argument("--rate", type=float, default=100.0, help="the link's rate in Mbit/s (default 100)")
    parser.add_argument("command", nargs="+", help="what to run in each, after --")
    given = parser.parse_args()
    try:
        with linked_pair(given.rate) as pair:
            return pair.run(given.command)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
