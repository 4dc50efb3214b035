"""What the keywords of torch's DistributedDataParallel mean to ours: taken, of no effect, or refused by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError, unknown

NO_EFFECT = ("gradient_as_bucket_view", "check_reduction", "batched_grad_copy")
"""They make torch's wrapper faster or leaner, or do nothing there either; our gradients are views of buckets anyway."""

ONLY: Mapping[str, Any] = {
    "dim": 0,
    "mixed_precision": None,
    "device_mesh": None,
    "delay_all_reduce_named_params": None,
    "param_to_hook_all_reduce": None,
    "skip_all_reduce_unused_params": False,
    "bucket_cap_mb_list": None,
}
"""Options that change what happens, and the only value of each that we have."""

HINTS = {"mixed_precision": "Compute the loss under torch.autocast instead."}


def check_torch_options(
    module: nn.Module,
    params: Mapping[str, nn.Parameter],
    device_ids: Sequence[int | torch.device | str] | None,
    output_device: Any,
    others: Mapping[str, Any],
) -> torch.device | None:
    """Refuse what cannot be honoured; the device that inputs are to be moved to, if one was named."""
    device = _device(params, device_ids)
    if output_device not in (None, *(device_ids or ())):
        raise ConfigError(f"output_device={output_device!r}: outputs stay on the device that computes them")
    for name, value in others.items():
        if name in NO_EFFECT:
            continue
        if name not in ONLY:
            raise ConfigError(unknown("option", name, [*ONLY, *NO_EFFECT]))
        if value != ONLY[name]:
            raise ConfigError(
                f"{name}={value!r} is torch's own: here it can only be {ONLY[name]!r}", HINTS.get(name, "")
            )
    _check_layers(module)
    if not params:
        raise ConfigError(
            f"{type(module).__name__} has no parameter that takes a gradient: there is nothing to exchange",
            "Use the module itself, without the wrapper.",
        )
    return device


def _check_layers(module: nn.Module) -> None:
    for name, param in module.named_parameters():
        if nn.parameter.is_lazy(param):
            raise ConfigError(
                f"parameter '{name}' has no shape yet: its layer learns it from the first input",
                "Run the module on a sample before it is wrapped.",
            )
    for name, layer in module.named_modules():
        if isinstance(layer, nn.SyncBatchNorm) and not any(param.is_cuda for param in module.parameters()):
            raise ConfigError(
                f"layer '{name}' is torch's SyncBatchNorm, which works on GPUs only",
                "Convert the module with shoal.SyncBatchNorm.convert_sync_batchnorm instead.",
            )


def ignored_names(module: nn.Module) -> frozenset[str]:
    """The parameters and buffers that each worker keeps for itself, as torch's wrapper is told on the module."""
    return frozenset(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))


def _device(
    params: Mapping[str, nn.Parameter], device_ids: Sequence[int | torch.device | str] | None
) -> torch.device | None:
    if not device_ids:
        return None
    if len(device_ids) > 1:
        raise ConfigError(
            f"device_ids={list(device_ids)!r}: a worker computes on one device",
            "Start one worker per device.",
        )
    (number,) = device_ids
    device = torch.device("cuda", number) if isinstance(number, int) else torch.device(number)
    for name, param in params.items():
        if param.device != device:
            raise ConfigError(
                f"device_ids names {device}, and parameter '{name}' is on {param.device}",
                f"Move the module first: module.to('{device}'), or leave device_ids out.",
            )
    return device


def moved_to(device: torch.device, inputs: Any) -> Any:
    """The inputs with every tensor in them on the device, as torch's wrapper has them when it is told `device_ids`."""
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, dict):
        return {key: moved_to(device, value) for key, value in inputs.items()}
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields"):
        return type(inputs)(*(moved_to(device, value) for value in inputs))
    if isinstance(inputs, list | tuple):
        return type(inputs)(moved_to(device, value) for value in inputs)
    return inputs
