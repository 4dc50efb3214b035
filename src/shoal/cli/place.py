"""This process as one worker of several that are started by hand, a terminal each.

    shoal train … --strategy naive --rank 0 --world-size 2 --master 127.0.0.1:29517
    shoal train … --strategy naive --rank 1 --world-size 2 --master 127.0.0.1:29517

The course's scripts call the same things `--n_devices --rank --master_addr --master_port`, and name a GPU with `--gpu`.
"""

import os
from typing import TYPE_CHECKING

from shoal.cli.options import Options
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.comm.join import Place

PLACE_OPTIONS = (
    "--rank",
    "--world-size",
    "--master",
    "--n_devices",
    "--master_addr",
    "--master_port",
    "--gpu",
)


def place_of(options: Options) -> "Place | None":
    """The place that the options give; none when they give none."""
    given = [name for name in PLACE_OPTIONS if options.has(name)]
    if not given:
        return None
    if options.has("--gpu"):
        # Before torch looks: this worker then sees one GPU, its own.
        os.environ["CUDA_VISIBLE_DEVICES"] = str(_number(options, "--gpu"))
        given.remove("--gpu")
        if not given:
            return None
    rank, size = _number(options, "--rank"), _number(options, "--world-size", "--n_devices")
    host, port = _master(options)
    if not 0 <= rank < size:
        raise ConfigError(f"--rank {rank} is not in a world of {size}", f"Ranks go from 0 to {size - 1}.")

    from shoal.comm.join import Place

    return Place(rank, size, host, port)


def _master(options: Options) -> tuple[str, int]:
    master = options.value("--master")
    if master is None:
        return options.value("--master_addr") or "127.0.0.1", _number(options, "--master_port")
    host, colon, port = master.rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(f"--master is written host:port, not '{master}'")
    return host, int(port)


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
