"""Checks of a run against its number of workers, their address and this machine, before anything starts.

What a run needs at least is compared with what the machine has: a size that cannot fit is refused.
"""

import ipaddress
import math
import os
import warnings
from itertools import pairwise
from pathlib import Path

from shoal.config.mesh import check_power_of_two
from shoal.config.schema import RunConfig
from shoal.config.sections.data import AliceConfig, BuiltInDataConfig, DataConfig, OwnData, SyntheticConfig
from shoal.config.sections.model import MlpConfig, Resnet18Config, TransformerConfig
from shoal.config.sections.sync import RpcConfig
from shoal.errors import ConfigError

PROCESS_BYTES = 64 * 2**20
"""The least that a process with torch loaded has for itself."""
MOST_LAYERS = 10_000
INPUT_SHAPES = {
    "digits": (1, 28, 28),
    "mnist": (1, 28, 28),
    "fashion-mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
}
GIB = 2**30


def check_resources(config: RunConfig, workers_here: int) -> None:
    """Refuse a run that needs more memory than this machine has, by a lower bound: what may fit is tried."""
    check_threads(config.threads)
    if isinstance(config.model, MlpConfig) and len(config.model.hidden) > MOST_LAYERS:
        raise ConfigError(
            f"model.hidden has {len(config.model.hidden)} layers, at most {MOST_LAYERS} are possible"
        )
    data, model = data_bytes(config.data), 8 * num_weights(config)  # a weight and its gradient
    check_memory(
        workers_here,
        data + model,
        f"data {_gib(data)}, weights and gradients {_gib(model)}",
        config.launch.launcher,
    )


def check_memory(workers: int, each: int = 0, details: str = "", launcher: str = "processes") -> None:
    """Refuse so many workers on this machine if they need more memory than it has."""
    own = PROCESS_BYTES if launcher != "threads" and workers > 1 else 0
    needed, there = workers * (each + own), memory_bytes()
    if needed > there:
        who = f"{workers} workers need" if workers > 1 else "this run needs"
        per_worker = f" ({details}{' per worker' if workers > 1 else ''})" if each > own else ""
        raise ConfigError(
            f"{who} at least {_gib(needed)} of memory{per_worker}; this machine has {_gib(there)}",
            "Choose smaller sizes or fewer workers.",
        )


def check_threads(threads: int | None) -> None:
    """Refuse more threads of one worker than a machine of this size could use."""
    most = max(256, 8 * (os.cpu_count() or 1))
    if threads is not None and threads > most:
        raise ConfigError(
            f"--threads {threads} is too large: this machine has {os.cpu_count()} cores, at most {most} are possible"
        )


def data_bytes(data: DataConfig) -> int:
    """The size of generated data: a byte per input, a label per sample, and the patterns of the classes."""
    if not isinstance(data, SyntheticConfig):
        return 0
    inputs = math.prod(data.shape)
    patterns = data.classes if data.task == "classification" else 1
    return data.samples * (inputs + 4) + 2 * patterns * inputs


def stand_in(data: BuiltInDataConfig) -> SyntheticConfig:
    """Generated data with inputs and labels of the same form, where the data themselves need not be read."""
    if isinstance(data, SyntheticConfig):
        return data
    if isinstance(data, AliceConfig):
        return SyntheticConfig(task="text", shape=(data.block_size,))
    return SyntheticConfig(shape=INPUT_SHAPES[data.name])


def num_weights(config: RunConfig) -> int:
    """The number of weights, or less."""
    data, model = config.data, config.model
    like = None if isinstance(data, OwnData) else stand_in(data)
    inputs = math.prod(like.shape) if like else 0
    outputs = like.classes if like and like.task == "classification" else 1
    if isinstance(model, MlpConfig):
        return sum(a * b for a, b in pairwise((inputs, *model.hidden, outputs)))
    if isinstance(model, Resnet18Config):
        return 2700 * model.width**2
    if isinstance(model, TransformerConfig):
        return 12 * model.layers * model.width**2
    return inputs * outputs if model.name == "linear" else 0


def memory_bytes() -> float:
    """Memory and swap of this machine, or the limit of its container; infinite where the system does not say."""
    there = math.inf
    for line in _lines("/proc/meminfo"):
        name, _, size = line.partition(":")
        if name in ("MemTotal", "SwapTotal"):
            there = (0 if there == math.inf else there) + int(size.split()[0]) * 1024
    limits = _lines("/sys/fs/cgroup/memory.max") + _lines("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    return min([there, *(int(limit) for limit in limits if limit.isdigit())])


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _gib(size: float) -> str:
    return f"{size / GIB:.3g} GiB" if size < 1e6 * GIB else f"{size / GIB:.0e} GiB"


LOOPBACK = "127.0.0.1"


def check_world(config: RunConfig, size: int, address: str = LOOPBACK) -> None:
    """Refuse a number of workers, or an address where they meet, that the strategy does not support."""
    launch = config.launch
    launch.check_workers(size, config.num_servers)
    if config.has_unequal_devices:
        _check_devices(config, size)
    if config.train.reduction == "invariant":
        check_power_of_two(size)
    if not isinstance(config.sync, RpcConfig):
        return
    if size < config.sync.FEWEST_WORKERS:
        raise ConfigError(
            f"strategy rpc needs at least {config.sync.FEWEST_WORKERS} workers, but there is {size}",
            f"Use --workers {config.sync.FEWEST_WORKERS + 1}, or --strategy single.",
        )
    if not is_loopback(address):
        why = (
            f"strategy rpc listens on the network of {address}, and its workers execute what they receive: "
            "any program that reaches them can run code as this user"
        )
        if not launch.i_trust_this_network:
            raise ConfigError(
                why, "Use --master 127.0.0.1:PORT; on a network of your own, add --i-trust-this-network."
            )
        warnings.warn(why, stacklevel=2)


def _check_devices(config: RunConfig, size: int) -> None:
    devices = config.device.count(",") + 1
    if devices != size:
        raise ConfigError(
            f"--device {config.device} is for {devices} workers, but there {'are' if size > 1 else 'is'} {size}",
            f"Name a device for each rank, or use --workers {devices}.",
        )
    if config.launch.group not in ("auto", "gloo"):
        raise ConfigError(
            f"--group {config.launch.group} does not reach from a GPU to a CPU (--device {config.device})",
            "Leave --group out: gloo exchanges through the memory of the host.",
        )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.7")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
