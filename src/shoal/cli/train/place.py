"""This process as one worker of several that the user starts by hand, each in a terminal.

    shoal train … --strategy naive --rank 0 --world-size 2 --master 127.0.0.1:29517
    shoal train … --strategy naive --rank 1 --world-size 2 --master 127.0.0.1:29517

The course's scripts write `--n_devices --rank --master_addr --master_port`, and choose a GPU with `--gpu`.
"""

import ipaddress
import os
import sys
from typing import Annotated, NamedTuple

from shoal.cli.command import Given
from shoal.config.flags import Flag
from shoal.config.kinds import AtLeast, Matching
from shoal.config.sections.values import Count, PositiveFloat
from shoal.errors import ConfigError

_Number = Annotated[int, AtLeast(0)]

PLACE_FLAGS = (
    Flag("--rank", "Rank of this worker, if you start each worker by hand.", _Number),
    Flag("--world-size", "Number of workers that you start.", Count, aliases=("--n_devices",)),
    Flag(
        "--master",
        "Address at which rank 0 listens and the others join.",
        Annotated[str, Matching(r".+:\d+", "host:port")],
        value="HOST:PORT",
    ),
    Flag(
        "--master_addr",
        "Host of --master, as the course's scripts write it.",
        default="127.0.0.1",
        value="HOST",
    ),
    Flag("--master_port", "Port of --master, as the course's scripts write it.", _Number, value="PORT"),
    Flag("--join-timeout", "Seconds to wait for the other workers.", PositiveFloat, 60.0, "SECONDS"),
    Flag("--gpu", "The GPU that this worker uses.", _Number),
)
_ADDRESS = frozenset({"--rank", "--world-size", "--master", "--master_addr", "--master_port"})


class WorkerAddress(NamedTuple):
    """The fields of `comm.join.Place`, which cannot be imported before the number of threads is set."""

    rank: int
    size: int
    host: str
    port: int


def place_of(given: Given) -> WorkerAddress | None:
    """The place that the flags give; None if they give none. With --gpu, this process sees only that GPU."""
    if given["--gpu"] is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(given["--gpu"])  # torch reads it when it is loaded
    if not given.present & _ADDRESS:
        return None
    for flag in ("--rank", "--world-size", "--master"):
        if given[flag] is None and not (flag == "--master" and "--master_port" in given.present):
            raise ConfigError(
                f"{flag} is required", "To start a worker by hand: --rank N --world-size N --master HOST:PORT"
            )
    rank, size = given["--rank"], given["--world-size"]
    if rank >= size:
        raise ConfigError(f"--rank {rank} is not in a world of {size}", f"Ranks go from 0 to {size - 1}.")
    if given["--master"] is None:
        return WorkerAddress(rank, size, given["--master_addr"], given["--master_port"])
    host, _, port = given["--master"].rpartition(":")
    return WorkerAddress(
        rank, size, host.removeprefix("[").removesuffix("]"), int(port)
    )  # [::1]:29517 is IPv6


def set_threads(place: WorkerAddress | None, threads: int | None) -> None:
    """Set OMP_NUM_THREADS: some libraries read it once, when they are loaded. Has no effect once torch is loaded.

    If the user asks for no number and all workers are on this machine, each gets its part of the cores: two workers
    with a thread per core each are many times slower.
    """
    if "torch" in sys.modules:
        return
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    elif place is not None and _is_this_machine(place.host):
        from shoal.launch.members import threads_per_worker

        os.environ.setdefault("OMP_NUM_THREADS", str(threads_per_worker(place.size)))


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
