"""This process as one worker of several that the user starts by hand, each in a terminal.

    shoal train … --strategy naive --rank 0 --world-size 2 --master 127.0.0.1:29517
    shoal train … --strategy naive --rank 1 --world-size 2 --master 127.0.0.1:29517

The course's scripts write `--n_devices --rank --master_addr --master_port`, and choose a GPU with `--gpu`.
"""

import os
import sys
from typing import NamedTuple

from shoal.cli.train.flags import TrainFlags
from shoal.config.kinds import check
from shoal.config.sections.values import Port
from shoal.errors import ConfigError


class GivenAddress(NamedTuple):
    """The first fields of `comm.join.WorkerAddress`, which cannot be imported before the number of threads is set."""

    rank: int
    size: int
    host: str
    port: int


def place_of(flags: TrainFlags) -> GivenAddress | None:
    """The place that the flags give; None if they give none."""
    host, port = flags.master_addr or "127.0.0.1", flags.master_port
    if flags.master is not None:
        host, _, port = flags.master.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")  # [::1]:29517 is IPv6
    needed = {"--rank": flags.rank, "--world-size": flags.world_size, "--master": port}
    if flags.master_addr is None and all(value is None for value in needed.values()):
        return None
    for flag, value in needed.items():
        if value is None:
            hint = "To start a worker by hand: --rank N --world-size N --master HOST:PORT"
            raise ConfigError(f"{flag} is required", hint)
    rank, size, port = (int(value or 0) for value in needed.values())
    check(Port, port, "--master")
    if rank >= size:
        raise ConfigError(f"--rank {rank} is not in a world of {size}", f"Ranks go from 0 to {size - 1}.")
    return GivenAddress(rank, size, host, port)


def take_gpu(number: int | None) -> None:
    """Let this process see only the GPU of --gpu; call it after `set_threads`, because it loads torch."""
    if number is None:
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = str(number)

    import torch

    if not torch.cuda.device_count():
        del os.environ["CUDA_VISIBLE_DEVICES"]
        os.environ.update({} if before is None else {"CUDA_VISIBLE_DEVICES": before})
        raise ConfigError(
            f"--gpu {number}: torch sees no such GPU on this machine",
            "GPUs are numbered from 0; `shoal doctor` shows them. Without --gpu the run chooses a device itself.",
        )


def set_threads(place: GivenAddress | None, threads: int | None) -> None:
    """Set OMP_NUM_THREADS: some libraries read it once, when they are loaded. Has no effect once torch is loaded.

    If the user asks for no number and all workers are on this machine, each gets its part of the cores: two workers
    with a thread per core each are many times slower.
    """
    if "torch" in sys.modules:
        return
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    elif place is not None:
        # Here, because they import the checks of all settings, which `shoal --help` does not need.
        from shoal.config.checks.world import is_loopback
        from shoal.launch.cores import threads_per_worker

        if is_loopback(place.host):
            os.environ.setdefault("OMP_NUM_THREADS", str(threads_per_worker(place.size)))
