"""The keywords of torch's DistributedDataParallel: supported, without effect, or refused by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from shoal.errors import ArgumentError, ConfigError, WrapperError, unknown
from shoal.models.common import check_has_values

NO_EFFECT = ("gradient_as_bucket_view", "check_reduction", "batched_grad_copy")
"""Options for the speed or memory of torch's wrapper; our gradients are views of buckets in any case."""

ONLY: Mapping[str, Any] = {
    "dim": 0,
    "mixed_precision": None,
    "device_mesh": None,
    "delay_all_reduce_named_params": None,
    "param_to_hook_all_reduce": None,
    "skip_all_reduce_unused_params": False,
    "bucket_cap_mb_list": None,
}
"""Options that would change the result, each with the only value that is supported."""

HINTS = {"mixed_precision": "Compute the loss under torch.autocast instead."}


def check_torch_options(
    module: nn.Module,
    params: Mapping[str, nn.Parameter],
    device_ids: Sequence[int | torch.device | str] | None,
    output_device: Any,
    others: Mapping[str, Any],
) -> torch.device | None:
    """Refuse unsupported options; return the device to move inputs to, if `device_ids` names one."""
    device = _device(params, device_ids)
    if output_device not in (None, *(device_ids or ())):
        raise ConfigError(
            f"output_device={output_device!r} is not supported: outputs stay on the device that computes them"
        )
    for name, value in others.items():
        if name in NO_EFFECT:
            continue
        if name not in ONLY:
            raise ArgumentError(unknown("option", name, [*ONLY, *NO_EFFECT]))
        if value != ONLY[name]:
            kind = WrapperError if name == "device_mesh" else ConfigError
            raise kind(
                f"{name}={value!r} is not supported",
                HINTS.get(name, f"Use {name}={ONLY[name]!r}, the default."),
            )
    _check_layers(module)
    if not params:
        raise WrapperError(
            f"{type(module).__name__} has no parameter that requires a gradient",
            "Use the module itself, without the wrapper.",
        )
    return device


def _check_layers(module: nn.Module) -> None:
    check_has_values(module)
    first: tuple[str, str] | None = None
    for name, param in module.named_parameters():
        kind = param.device.type
        first = first or (name, kind)
        if kind != first[1]:
            raise ConfigError(
                f"parameter '{first[0]}' is on {first[1]} and parameter '{name}' on {kind}",
                "Move the module to one type of device before you wrap it.",
            )
    for name, layer in module.named_modules():
        if isinstance(layer, nn.SyncBatchNorm) and not any(param.is_cuda for param in module.parameters()):
            raise ConfigError(
                f"layer '{name}' is torch's SyncBatchNorm, which works on GPUs only",
                "Convert the module with shoal.SyncBatchNorm.convert_sync_batchnorm instead.",
            )


def _device(
    params: Mapping[str, nn.Parameter], device_ids: Sequence[int | torch.device | str] | None
) -> torch.device | None:
    if not device_ids:
        return None
    if len(device_ids) > 1:
        raise ConfigError(
            f"device_ids={list(device_ids)!r} is not supported: a worker computes on one device",
            "Start one worker per device.",
        )
    (number,) = device_ids
    device = torch.device("cuda", number) if isinstance(number, int) else torch.device(number)
    if device.type == "cpu":
        raise ConfigError(
            f"device_ids={list(device_ids)!r} is not supported: it names a device for modules on a GPU",
            "Remove device_ids.",
        )
    for name, param in params.items():
        if param.device != device:
            raise ConfigError(
                f"device_ids names {device}, but parameter '{name}' is on {param.device}",
                f"Move the module first: module.to('{device}'), or remove device_ids.",
            )
    return device


def moved_to(device: torch.device, inputs: Any) -> Any:
    """The inputs, with every tensor in them moved to the device."""
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), inputs)
