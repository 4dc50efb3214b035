"""Setting up the training of a user's model: the group, tensors that are kept equal, changes that are refused later."""

from collections.abc import Collection, Mapping
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shoal.comm.agree import check_same_model
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


def ignored_names(module: nn.Module) -> frozenset[str]:
    """The parameters and buffers that stay each worker's own: torch's attribute of the module."""
    return frozenset(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))


def shared_params(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters whose gradients are exchanged."""
    ignored = ignored_names(module)
    named = module.named_parameters()
    return {name: param for name, param in named if param.requires_grad and name not in ignored}


def shared_buffers(module: nn.Module) -> dict[str, Tensor]:
    """The buffers that are kept equal on all workers."""
    ignored = ignored_names(module)
    return {name: buffer for name, buffer in module.named_buffers() if name not in ignored}


def shared_state(module: nn.Module, buffers: bool = True) -> dict[str, Tensor]:
    """All tensors that are kept equal on all workers, frozen ones included."""
    ignored = ignored_names(module)
    params = {name: param.detach() for name, param in module.named_parameters() if name not in ignored}
    return params | (shared_buffers(module) if buffers else {})


def make_equal(group: Group, state: dict[str, Tensor], unfilled: Collection[str] = ()) -> None:
    """Give all workers rank 0's tensors; an error names what differs between their models. A collective.

    `unfilled` ones have no values yet.
    """
    check_same_model(group, state)
    broadcast_state(group, {name: tensor for name, tensor in state.items() if name not in unfilled})


def broadcast_state(group: Group, state: dict[str, Tensor], root: int = 0) -> None:
    """Copy the root's tensors to all workers."""
    for tensor in state.values():
        group.broadcast(tensor, root).wait()


def total_samples(group: Group, here: int) -> float:
    """The samples of all workers in a step; each says how many it has. A collective."""
    total = torch.tensor([float(here)], dtype=torch.float64)
    group.all_reduce(total).wait()
    if not total.item():
        raise ConfigError("no worker has samples: all called batch(num_samples=0)")
    return total.item()


@final
class SetUp:
    """A model as it was when its training was set up; later changes that the workers would not notice are refused."""

    def __init__(self, model: nn.Module, how: str, ignored: Collection[str] = ()) -> None:
        """`how` says how to set the training up again."""
        self._how = how
        self._frozen = {
            name: param
            for name, param in model.named_parameters()
            if not param.requires_grad and name not in ignored
        }
        self._addresses: dict[str, tuple[nn.Parameter, int]] = {}

    def fix_memory(self, params: Mapping[str, nn.Parameter]) -> None:
        """From now on these parameters have the memory in which they are updated."""
        self._addresses = {name: (param, param.data_ptr()) for name, param in params.items()}

    def check(self) -> None:
        """Raise a ConfigError that names a parameter that was unfrozen, or has been moved to other memory."""
        for name, param in self._frozen.items():
            if param.requires_grad:
                raise ConfigError(
                    f"parameter '{name}' was frozen when the training was set up, and now requires a gradient: the "
                    "workers would not exchange it",
                    f"Unfreeze it before that, or set up the training again: {self._how}.",
                )
        for name, (param, address) in self._addresses.items():
            if param.data_ptr() != address:
                raise ConfigError(
                    f"parameter '{name}' has other memory than when the training was set up: updates would not reach "
                    "the model",
                    "Call model.to(…), model.half() and the like before that, and change weights in place: "
                    "param.data.copy_(…).",
                )
