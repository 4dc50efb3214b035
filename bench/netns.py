"""Two network namespaces, joined by a link of a given rate: a slow network for programs that have no setting for one.

    sudo python bench/netns.py --rate 100 -- python train.py

Each namespace has one end of a virtual Ethernet cable, and nothing else: what its processes send to the other passes
through a token bucket filter (`tc tbf`) in each direction. The command runs once in each, with the variables that
torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), GLOO_SOCKET_IFNAME, and a SHOAL_SECRET.

Needs Linux, root, and the commands `ip` and `tc`. If one process fails, the other is stopped. Namespaces are deleted
at the end, after an error, Ctrl-C and SIGTERM as well; those that a killed process left behind, at the next start.
"""

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from types import FrameType

PREFIX = "shoal-bench"
CARD = "link0"
"""The network card of each namespace."""
ADDRESSES = ("10.213.7.1", "10.213.7.2")
PORT = 29517
BURST = "6kb"
"""What may pass at once. Small, because messages up to this size pass without delay; four full packets."""
LONGEST_QUEUE = "100ms"
"""Packets that would wait longer are dropped, and TCP slows down."""
GRACE_S = 5.0


class LinkError(RuntimeError):
    """The link cannot be made."""


@dataclass(frozen=True)
class LinkedPair:
    """Two namespaces that a link joins."""

    namespaces: tuple[str, str]

    def run(self, command: Sequence[str]) -> int:
        """Run a command in both; return 0, or the exit code of the first that failed."""
        secret = secrets.token_hex(32)
        workers: list[subprocess.Popen[bytes]] = []
        try:
            for rank, namespace in enumerate(self.namespaces):
                environment = os.environ | {
                    "RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": ADDRESSES[0],
                    "MASTER_PORT": str(PORT),
                    "GLOO_SOCKET_IFNAME": CARD,
                    "SHOAL_SECRET": secret,
                }
                workers.append(
                    subprocess.Popen(["ip", "netns", "exec", namespace, *command], env=environment)
                )
            while any(worker.poll() is None for worker in workers):
                if failed := _failed(workers):
                    return failed
                time.sleep(0.05)
            return _failed(workers)
        finally:
            _stop(workers)


def _failed(workers: Sequence[subprocess.Popen[bytes]]) -> int:
    return next((worker.returncode for worker in workers if worker.returncode), 0)


def _stop(workers: Sequence[subprocess.Popen[bytes]]) -> None:
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
    """Make the namespaces and the link, without a rate as fast as the machine; delete them at the end."""
    _check()
    _delete_leftovers()
    pair = LinkedPair((f"{PREFIX}-{os.getpid()}-0", f"{PREFIX}-{os.getpid()}-1"))
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        for namespace in pair.namespaces:
            _call("ip", "netns", "add", namespace)
        first, second = pair.namespaces
        _call("ip", "-n", first, "link", "add", CARD, "type", "veth", "peer", "name", CARD, "netns", second)
        for namespace, address in zip(pair.namespaces, ADDRESSES, strict=True):
            _call("ip", "-n", namespace, "address", "add", f"{address}/30", "dev", CARD)
            _call("ip", "-n", namespace, "link", "set", "lo", "up")
            _call("ip", "-n", namespace, "link", "set", CARD, "up")
            if rate_mbit is not None:
                shape = ("rate", f"{rate_mbit}mbit", "burst", BURST, "latency", LONGEST_QUEUE)
                _call("tc", "-n", namespace, "qdisc", "add", "dev", CARD, "root", "tbf", *shape)
        yield pair
    finally:
        for namespace in pair.namespaces:
            # Its card, and with it the other end of the cable, goes with the namespace.
            _call("ip", "netns", "delete", namespace, may_fail=True)
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: FrameType | None) -> None:
    """Leave through all `finally` clauses."""
    del frame
    sys.exit(128 + number)


def _check() -> None:
    missing = [command for command in ("ip", "tc") if shutil.which(command) is None]
    if missing:
        raise LinkError(f"command not found: {', '.join(missing)}. Install the package iproute2.")
    if os.geteuid():
        raise LinkError("network namespaces need root. Run the command with sudo.")


def _delete_leftovers() -> None:
    """Delete the namespaces of processes that no longer exist."""
    for line in _call("ip", "netns", "list").splitlines():
        name = line.split()[0]
        maker = name.removeprefix(f"{PREFIX}-").split("-")[0]
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{maker}"):
            _call("ip", "netns", "delete", name, may_fail=True)


def _call(*command: str, may_fail: bool = False) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise LinkError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    """Run a command in both namespaces."""
    parser = argparse.ArgumentParser(description="Run a command in two network namespaces that a link joins.")
    parser.add_argument("--rate", type=float, default=100.0, help="the link's rate in Mbit/s (default 100)")
    parser.add_argument("command", nargs="+", help="what to run in each, after --")
    given = parser.parse_args()
    try:
        with linked_pair(given.rate) as pair:
            return pair.run(given.command)
    except LinkError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
