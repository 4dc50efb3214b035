"""The group of a wrapper that was given none."""

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import nn

from shoal.comm.group import Group
from shoal.comm.join import group_beside, join
from shoal.comm.threads.group import ThreadGroup
from shoal.errors import ArgumentError, ConfigError


def all_of_torchs() -> Any:
    """Torch's default process group, if the program has initialised it."""
    return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None


def check_threads(group: Group, params: Mapping[str, nn.Parameter]) -> None:
    """Refuse thread workers on a GPU."""
    if isinstance(group, ThreadGroup) and group.size > 1 and any(param.is_cuda for param in params.values()):
        raise ConfigError(
            "thread workers cannot exchange gradients on a GPU: torch runs all backward passes of a GPU in one thread, "
            "where each worker would wait for the others",
            "Start processes: shoal launch --launcher processes, or torchrun.",
        )


def group_of(
    given: Group | None,
    params: Mapping[str, nn.Parameter],
    process_group: Any = None,
    limit_s: float | None = None,
) -> Group:
    """The given group; without one, a group beside torch's if the program has that, else the launcher's workers.

    A group that serves GPUs apart gives the one for the parameters' device.
    """
    if process_group is not None and not isinstance(process_group, dist.ProcessGroup):
        raise ArgumentError(
            f"process_group is a value of type {type(process_group).__name__}, expected a process group of torch's",
            "Pass a group of shoal's as the second argument.",
        )
    gpu = next((param.device for param in params.values() if param.is_cuda), None)
    if given is not None:
        group = given
    elif process_group is not None or all_of_torchs() is not None:
        # Keep gloo if the program chose it for its GPUs: NCCL refuses workers that share one.
        on_nccl = "nccl" in str(dist.get_backend(process_group))
        return group_beside(process_group, ("nccl" if on_nccl else "gloo") if gpu else "auto", limit_s)
    else:
        group = join(limit_s=limit_s, timeout_s=limit_s)
    return group.serving(gpu) if gpu else group
