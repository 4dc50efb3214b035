"""Where a worker computes, and through what workers that compute there can talk."""

import os

import torch

from shoal.config.schema import RunConfig
from shoal.errors import ConfigError


def take_device(config: RunConfig) -> torch.device:
    """The device of this worker, made torch's current one: on a machine with several GPUs, each takes its own.

    Which number a worker has on its machine is told by its launcher in LOCAL_RANK. Automatically, workers compute on
    GPUs if there is one for each, because NCCL refuses two on one; asked for, they share what there is.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if config.device == "cuda" and not gpus:
        raise ConfigError(
            "--device cuda, but torch sees no GPU on this machine",
            "Use --device cpu, or run `shoal doctor` to see what is missing.",
        )
    if not gpus or config.device == "cpu" or (config.device == "auto" and gpus < _workers_here(config)):
        return torch.device("cpu")
    by_threads = config.launch.launcher == "threads"
    number = torch.cuda.current_device() if by_threads else int(os.environ.get("LOCAL_RANK", 0)) % gpus
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def group_kind(config: RunConfig, device: torch.device) -> str:
    """The kind of group for workers on this device; what the user chose is left as it is."""
    kind = config.launch.group_kind
    if kind != "auto" or device.type == "cpu":
        return kind
    return "nccl" if torch.cuda.device_count() >= _workers_here(config) else "gloo"


def _workers_here(config: RunConfig) -> int:
    """Workers on this machine: the launcher's word, or all there are."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", config.launch.workers))
