"""What tests of launchers share: settings small enough for a second, and eyes for what is left behind."""

import contextlib
import os
import sys
import time
from ipaddress import ip_address
from pathlib import Path

from shoal.comm.rendezvous.store import listen
from shoal.config.read import read

TINY = "--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --batch-size 32 --epochs 3 "
TINY += "--threads 1 --device cpu --strategy naive --checkpoint-every 3 --model misbehaving:net"
"""12 steps of two workers: by step 8, checkpoints of steps 3 and 6 are on disk."""
HERE = Path(__file__).parent


def flags(folder, more="", **options):
    """Flags of a run under `folder`; the options are those of the misbehaving model."""
    words = [*TINY.split(), "--runs-dir", str(folder), "--model.proof", str(folder / "proof"), *more.split()]
    for name, value in options.items():
        words += [f"--model.{name}", str(value)]
    return words


def config(folder, more="--workers 2", **options):
    return read(None, flags(folder, more, **options))


def environment(**changes):
    """For processes of their own: they find the misbehaving model, and take one thread each."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE), **changes}


def command(*words):
    return [sys.executable, "-m", "shoal", *words]


_COMMANDS = {}
"""The command lines of launchers that were seen alive: copies of them have the same."""


def workers_of(launcher_pid):
    """The processes that a launcher has started and that are still there, forked children included."""
    found = _living(f"\0{launcher_pid}\0".encode())
    command = _read(f"/proc/{launcher_pid}/cmdline")
    if command and launcher_pid != os.getpid():
        _COMMANDS[launcher_pid] = command
    if launcher_pid in _COMMANDS:
        found += _living(_COMMANDS[launcher_pid])
    return sorted(pid for pid in set(found) if rank_of(pid) is not None)


def rank_of(pid):
    """The rank of a worker that a launcher has started; None for other processes."""
    name, _, rank = _read(f"/proc/{pid}/comm").strip().rpartition(b" ")
    return int(rank) if name == b"shoal rank" else None


def launcher():
    """The launcher of this worker: its parent, or the parent of the template that it is a copy of."""
    parent = os.getppid()
    if b"shoal.launch.process.template" not in _read(f"/proc/{parent}/cmdline"):
        return parent
    return int(_read(f"/proc/{parent}/stat").rpartition(b")")[2].split()[1])


def orphan_killers_of(launcher_pid):
    """The orphan killer that a launcher has started, if it is still there."""
    return _living(f"orphans.py\0{launcher_pid}\0".encode())


def wait_until(condition, timeout_s=100.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def state_of(pid):
    """The letter for what a process does: T is stopped, Z dead, nothing where it is gone."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().strip()[:1]


def _living(words):
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [
        pid
        for pid in pids
        if words in _read(f"/proc/{pid}/cmdline") + b"\0" and state_of(pid) not in ("", "Z")
    ]


def _read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def listening_addresses(pids):
    """The addresses on which these processes listen, as the kernel's tables show them."""
    for pid in pids:
        inodes = set()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(descriptor))
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == "0A" and f"socket:[{rest[5]}]" in inodes:
                    words = bytes.fromhex(local.split(":")[0])
                    parts = [words[start : start + 4][::-1] for start in range(0, len(words), 4)]
                    yield f"{ip_address(b''.join(parts))}:{int(local.split(':')[1], 16)}"


def free_port():
    """A port of this machine that no process listens on."""
    with listen("127.0.0.1", 0) as server:
        return server.getsockname()[1]
