"""This process as one worker of several that are started by hand, a terminal each.

    shoal train … --strategy naive --rank 0 --world-size 2 --master 127.0.0.1:29517
    shoal train … --strategy naive --rank 1 --world-size 2 --master 127.0.0.1:29517

A worker waits 60 s for the others, or as long as `--join-timeout` says.
The course's scripts call the same things `--n_devices --rank --master_addr --master_port`, and name a GPU with `--gpu`.
"""

import ipaddress
import os
import sys
from typing import TYPE_CHECKING

from shoal.cli.options import Options
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.comm.join import Place

JOIN_TIMEOUT_S = 60.0
PLACE_OPTIONS = (
    "--rank",
    "--world-size",
    "--master",
    "--n_devices",
    "--master_addr",
    "--master_port",
    "--gpu",
    "--join-timeout",
)


def place_of(options: Options) -> "Place | None":
    """The place that the options give; none when they give none."""
    if options.has("--gpu"):
        # Before torch looks: this worker then sees one GPU, its own.
        os.environ["CUDA_VISIBLE_DEVICES"] = str(_number(options, "--gpu"))
    if not any(options.has(name) for name in PLACE_OPTIONS if name not in ("--gpu", "--join-timeout")):
        return None
    rank, size = _number(options, "--rank"), _number(options, "--world-size", "--n_devices")
    host, port = _master(options)
    if not 0 <= rank < size:
        raise ConfigError(f"--rank {rank} is not in a world of {size}", f"Ranks go from 0 to {size - 1}.")

    from shoal.comm.join import Place

    return Place(rank, size, host, port)


def set_threads(options: Options, threads: int | None) -> None:
    """Say in the environment how many threads this process may use: some libraries look there, once, and nowhere else.

    As many as asked for. Otherwise, where the master is this machine, and so all workers started by hand are, their
    part of the cores: two workers with a thread per core each are many times slower. No use once torch is loaded.
    """
    if "torch" in sys.modules:
        return
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    elif options.has("--rank") and _is_this_machine(_master(options)[0]):
        from shoal.launch.cores import threads_per_worker

        workers = max(1, _number(options, "--world-size", "--n_devices"))
        os.environ.setdefault("OMP_NUM_THREADS", str(threads_per_worker(workers)))


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def join_timeout_of(options: Options) -> float:
    """How many seconds to wait for the others."""
    value = options.value("--join-timeout")
    try:
        seconds = float(value or JOIN_TIMEOUT_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"--join-timeout is a number of seconds, not '{value}'")
    return seconds


def _master(options: Options) -> tuple[str, int]:
    master = options.value("--master")
    if master is None:
        return options.value("--master_addr") or "127.0.0.1", _number(options, "--master_port")
    host, colon, port = master.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ConfigError(f"--master is written host:port, not '{master}'")
    return host.removeprefix("[").removesuffix("]"), int(port)  # an IPv6 address comes in brackets


def _number(options: Options, *names: str) -> int:
    for name in names:
        value = options.value(name)
        if value is not None:
            if not value.isdigit():
                raise ConfigError(f"{name} must be a whole number, not '{value}'")
            return int(value)
    raise ConfigError(
        f"a worker started by hand needs {' or '.join(names)}",
        "All of them: --rank N --world-size N --master host:port",
    )
