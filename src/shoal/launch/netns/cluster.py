"""Several machines on one: each node has its own network, process numbers, name, mounts and shared memory.

    with VirtualCluster(2, rate=100e6) as cluster:
        worker = cluster.nodes[1].start(["python", "train.py"], env={**os.environ, "RANK": "1"})

A bridge joins the nodes. Each has one network card, shaped in both directions by a token bucket filter (`tc tbf`), and
finds the others by name (node01, node02, …) in its /etc/hosts. The file system is this machine's, except /dev/shm and
the folders that `Node.own` gives it.

A process `cat` holds the namespaces of each node and reads from a pipe that this process holds open. When this process
ends, also by SIGKILL, `cat` ends, and the kernel removes the node with all its processes. Nothing of it is visible
in `ip netns`, and no address of it on this machine's own network.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, final

from shoal.errors import ConfigError

CARD = "eth0"
"""The network card of each node."""
NETWORK = "10.213.7"
COMMANDS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
"""Commands that a cluster needs, and Debian's packages with them."""
MOST_NODES = 64
BURST_S = 0.001
LEAST_BURST = 6_000
"""Bytes that may pass at once: what the rate carries in `BURST_S`, at least four packets."""
LONGEST_QUEUE = "100ms"
"""Packets that would wait longer are dropped, and TCP slows down."""
END_S = 5.0
_ENTER = str(Path(__file__).with_name("enter.py"))
_BEGUN = "echo; exec cat"
"""What holds namespaces: it says that they are there, and ends with its standard input."""
_SETTLE = (
    "mount -t tmpfs tmpfs /dev/shm && "
    'printf "%s" "$1" > /dev/shm/hosts && mount --bind /dev/shm/hosts /etc/hosts && '
    'mount -t tmpfs tmpfs /dev/shm && { hostname "$2" || echo "$2" > /proc/sys/kernel/hostname; } && '
)


def missing_for_cluster() -> str:
    """Why this machine cannot have virtual nodes, in one sentence; empty if it can."""
    if sys.platform != "linux":
        return f"virtual nodes are namespaces of Linux, and this is {sys.platform}"
    absent = [command for command in COMMANDS if _path_of(command) is None]
    if absent:
        packages = " ".join(sorted({COMMANDS[command] for command in absent}))
        return f"command not found: {', '.join(absent)} (apt install {packages})"
    tried = subprocess.run(
        [*_unshare(), "--net", "--mount", "--pid", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode == 0:
        return ""
    needs = "CAP_SYS_ADMIN and CAP_NET_ADMIN" if os.geteuid() == 0 else "root, or namespaces of users"
    return f"virtual nodes need {needs}, which this machine does not give: {tried.stderr.strip()}"


@final
class VirtualCluster:
    """Nodes on a bridge. `rate` limits each node's card in each direction, in bits per second; None: no limit."""

    def __init__(self, nodes: int, rate: float | None = None) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise ConfigError(f"a virtual cluster has 1 to {MOST_NODES} nodes, not {nodes}")
        if reason := missing_for_cluster():
            raise ConfigError(reason, "Run the command with sudo, or on a machine that allows it.")
        self._processes: list[subprocess.Popen[bytes]] = []
        self.nodes: list[Node] = []
        try:
            self._switch = self._hold([*_unshare(), "--net", "--mount", "--uts", "--ipc"], _BEGUN)
            self._call("ip", "link", "add", "bridge0", "type", "bridge", "forward_delay", "0")
            self._call("ip", "link", "set", "bridge0", "up")
            names = [f"node{number + 1:02}" for number in range(nodes)]
            addresses = [f"{NETWORK}.{number + 1}" for number in range(nodes)]
            hosts = "".join(
                f"{a} {n}\n" for a, n in zip(["127.0.0.1", *addresses], ["localhost", *names], strict=True)
            )
            for name, address in zip(names, addresses, strict=True):
                self.nodes.append(self._make(name, address, hosts))
                self.nodes[-1].shape(rate)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "VirtualCluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the nodes, and kill whatever still runs in them."""
        for process in reversed(self._processes):
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _make(self, name: str, address: str, hosts: str) -> "Node":
        """A node with its card; a cable joins it to the bridge."""
        inside = ["unshare", "--net", "--pid", "--ipc", "--uts", "--mount", "--mount-proc", "--fork"]
        holder = self._hold([*_in(self._switch), *inside], _SETTLE + _BEGUN, hosts, name)
        node = Node(name, address, holder, self._switch)
        self._call("ip", "link", "add", name, "type", "veth", "peer", "name", CARD, "netns", str(holder))
        self._call("ip", "link", "set", name, "master", "bridge0", "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{address}/24", "dev", CARD),
            ("link", "set", CARD, "up"),
        ):
            node.call("ip", *words)
        return node

    def _hold(self, unshare: Sequence[str], script: str, *words: str) -> int:
        """Make namespaces that last until our end of a pipe is closed; the process that is in them."""
        # In a group of its own: Ctrl-C is for those who use the cluster.
        process = subprocess.Popen(
            [*unshare, "sh", "-c", script, "sh", *words],
            stdin=-1,
            stdout=-1,
            stderr=-1,
            process_group=0,
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stderr as errors:
            if not process.stdout.readline():
                raise ConfigError(f"cannot make a virtual node: {errors.read().decode().strip()}")
        return process.pid

    def _call(self, *command: str) -> None:
        _call(*_in(self._switch, "net"), *command)


@final
class Node:
    """A virtual machine of a cluster."""

    def __init__(self, name: str, address: str, holder: int, switch: int) -> None:
        self.name, self.address = name, address
        self.pid = holder
        """A process, as this machine numbers it, that is in the node's namespaces except the one of processes."""
        self._switch = switch

    def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> "subprocess.Popen[Any]":
        """Start a command in the node, as `subprocess.Popen` does with these options. Signals reach the command."""
        words = [sys.executable, "-I", "-S", _ENTER, str(self.pid), *command]
        return subprocess.Popen(words, env=env, cwd=cwd, **options)

    def run(self, command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
        """Run a command in the node, as `subprocess.run` does with these options."""
        return subprocess.run([sys.executable, "-I", "-S", _ENTER, str(self.pid), *command], **options)

    def call(self, *command: str) -> None:
        """Run a command that needs the node's network and mounts, and sees this machine's processes."""
        _call(*_in(self.pid), *command)

    def own(self, folder: str | os.PathLike[str]) -> None:
        """Give the node an empty disk of its own (in memory) in place of a folder, which must exist.

        A second call gives an empty one again, as if the first disk were lost.
        """
        self.call("mount", "-t", "tmpfs", "tmpfs", os.path.abspath(folder))

    def path(self, folder: str | os.PathLike[str]) -> Path:
        """Where this machine finds a folder of the node."""
        return Path(f"/proc/{self.pid}/root{os.path.abspath(folder)}")

    def shape(self, rate: float | None) -> None:
        """Limit the node's card in each direction to bits per second; None lifts the limit."""
        # The bridge's end of the cable sends to the node.
        for holder, card in ((self.pid, CARD), (self._switch, self.name)):
            tc = [*_in(holder, "net"), "tc", "qdisc"]
            if rate is None:
                subprocess.run([*tc, "del", "dev", card, "root"], capture_output=True, check=False)
                continue
            burst = max(LEAST_BURST, round(rate * BURST_S / 8))
            shape = ("rate", f"{rate:.0f}bit", "burst", str(burst), "latency", LONGEST_QUEUE)
            _call(*tc, "replace", "dev", card, "root", "tbf", *shape)

    def sent_bytes(self) -> int:
        """Bytes that the node's card has sent, headers included, as the kernel counts them."""
        return self._counters()[8]

    def received_bytes(self) -> int:
        """Bytes that the node's card has received, headers included, as the kernel counts them."""
        return self._counters()[0]

    def _counters(self) -> list[int]:
        for line in Path(f"/proc/{self.pid}/net/dev").read_text().splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == CARD:
                return [int(number) for number in numbers.split()]
        raise ConfigError(f"{self.name} has no network card {CARD} any longer")


def _path_of(command: str) -> str | None:
    """Users' PATH often lacks the folders of system commands."""
    return shutil.which(command) or shutil.which(command, path="/usr/sbin:/sbin")


def _unshare() -> list[str]:
    """Root needs no namespace of users; inside one, other users are root."""
    return ["unshare"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]


def _in(holder: int, *kinds: str) -> list[str]:
    """The beginning of a command that runs in namespaces of a process."""
    names = [f"--{kind}" for kind in kinds or ("net", "mount", "uts", "ipc")]
    users = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return ["nsenter", "--target", str(holder), *users, *names]


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
