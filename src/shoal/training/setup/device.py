"""The device of a worker, and the communication backend that fits it."""

import os

import torch

from shoal.config.combinations import refused_with
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError


def take_device(config: RunConfig) -> torch.device:
    """The device of this worker, set as torch's current one; on a machine with several GPUs, each worker has its own.

    The launcher sets LOCAL_RANK, the worker's number on its machine. With `auto`, workers use GPUs only if there is one
    for each, because NCCL does not support two workers on one GPU; with `cuda`, they share the GPUs that there are.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if config.device == "cuda" and not gpus:
        raise ConfigError(
            "--device cuda, but torch sees no GPU on this machine",
            "Use --device cpu, or run `shoal doctor` to see what is missing.",
        )
    stays_on_cpu = "--device cuda" in refused_with(f"strategy {config.strategy}") or (
        config.device == "auto" and gpus < _workers_here(config)
    )
    if not gpus or config.device == "cpu" or stays_on_cpu:
        return torch.device("cpu")
    by_threads = config.launch.launcher == "threads"
    number = torch.cuda.current_device() if by_threads else int(os.environ.get("LOCAL_RANK", 0)) % gpus
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def group_kind(config: RunConfig, device: torch.device) -> str:
    """The kind of group for workers on this device, unless the user chose one."""
    kind = config.launch.group
    if kind != "auto" or device.type == "cpu":
        return kind
    # Links need messages that go through the processor.
    is_nccl = torch.cuda.device_count() >= _workers_here(config) and not config.launch.link
    return "nccl" if is_nccl else "gloo"


def _workers_here(config: RunConfig) -> int:
    """The number of workers on this machine: LOCAL_WORLD_SIZE, or all workers."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", config.launch.workers))
