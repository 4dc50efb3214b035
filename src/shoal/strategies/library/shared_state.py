"""The tensors of a user's model that all workers keep equal."""

from torch import Tensor, nn

from shoal.comm.group import Group


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


def broadcast_state(group: Group, state: dict[str, Tensor], root: int = 0) -> None:
    """Copy the root's tensors to all workers."""
    for tensor in state.values():
        group.broadcast(tensor, root).wait()
