"""Which workers a wrapper trains with, where it is not told."""

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import nn

from shoal.comm.group import Group
from shoal.comm.join import join
from shoal.comm.over_torch.from_torch import group_beside
from shoal.comm.threads import ThreadGroup
from shoal.errors import ConfigError


def all_of_torchs() -> Any:
    """Torch's group of all processes, if the program has one."""
    return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None


def check_threads(group: Group, params: Mapping[str, nn.Parameter]) -> None:
    """Refuse threads that would exchange on a GPU."""
    if isinstance(group, ThreadGroup) and group.size > 1 and any(param.is_cuda for param in params.values()):
        raise ConfigError(
            "gradients are exchanged during backward, and all threads share the one thread in which torch runs "
            "backward on a GPU: each would wait for the other",
            "Start processes: shoal launch --launcher processes, or torchrun.",
        )


def default_group(process_group: Any, params: Mapping[str, nn.Parameter]) -> Group:
    """The group beside torch's, where the program has one; else that of the launcher, or of one worker alone."""
    on_gpu = any(param.is_cuda for param in params.values())
    if process_group is not None or (dist.is_available() and dist.is_initialized()):
        # A program that has chosen gloo for its GPUs has its reasons: NCCL refuses workers that share one.
        on_nccl = "nccl" in str(dist.get_backend(process_group))
        return group_beside(process_group, ("nccl" if on_nccl else "gloo") if on_gpu else "auto")
    return join(kind="nccl" if on_gpu else "auto")
