"""The keywords of torch's DistributedDataParallel (supported, without effect, or refused), and its hooks."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from shoal.comm.group import Work
from shoal.errors import ArgumentError, ConfigError, WrapperError, unknown
from shoal.models.common import check_has_values
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.exchange import Then

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


# Communication hooks: a function of the program turns a bucket of gradients into the aggregate.


@final
class HookBucket:
    """The argument of a hook, with the methods of torch's `GradBucket`."""

    def __init__(self, bucket: Bucket, params: list[Tensor]) -> None:
        self._bucket, self._params = bucket, params
        self._buffer = bucket.gradients

    def index(self) -> int:
        """Its place among the buckets of a backward pass."""
        return self._bucket.index

    def is_last(self) -> bool:
        """Whether it is the last one of the pass."""
        return self._bucket.is_last

    def buffer(self) -> Tensor:
        """All gradients of the bucket, as one flat tensor."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace the tensor, perhaps with one of another dtype: a hook does so for the hook that it wraps."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradients, each in its parameter's shape."""
        return self._bucket.views

    def parameters(self) -> list[Tensor]:
        """The parameters of these gradients."""
        return self._params


Hook = Callable[[Any, Any], Any]
"""`hook(state, bucket)` returns a future of the aggregate: a tensor like the bucket's buffer."""


def check_hook(hook: Any) -> None:
    """Refuse what torch's wrapper refuses: no function, or annotations of other types."""
    if not callable(hook):
        raise ArgumentError(
            f"hook is a value of type {type(hook).__name__}, expected a function of (state, bucket)"
        )
    signature = inspect.signature(hook)
    bucket = signature.parameters.get("bucket")
    of_bucket = inspect.Parameter.empty if bucket is None else bucket.annotation
    of_result, future = signature.return_annotation, torch.futures.Future[torch.Tensor]
    for what, annotation, right, expected in (
        ("bucket", of_bucket, dist.GradBucket, "dist.GradBucket"),
        ("result", of_result, future, "torch.futures.Future[torch.Tensor]"),
    ):
        if annotation not in (inspect.Parameter.empty, right):
            raise ConfigError(
                f"the annotation of a communication hook's {what} is {annotation!r}, expected {expected}",
                "Correct or remove the annotation.",
            )


def send_by_hook(hook: Hook, state: object, params: Mapping[str, Tensor], bucket: Bucket) -> Work:
    """Have a hook exchange a full bucket: over when its future is done and the result is in the bucket."""
    future = hook(state, HookBucket(bucket, [params[name] for name in bucket.names]))
    if not hasattr(future, "wait") or not hasattr(future, "done"):
        raise WrapperError(
            f"a communication hook returned a value of type {type(future).__name__}, expected a future of a tensor",
            "Return dist.all_reduce(…, async_op=True).get_future(), or a torch.futures.Future with a result.",
        )

    def take() -> None:
        value = future.wait()
        aggregate = value[0] if isinstance(value, list | tuple) else value
        gradients = bucket.gradients
        numel = aggregate.numel() if isinstance(aggregate, Tensor) else None
        if numel != gradients.numel():
            got = type(aggregate).__name__ if numel is None else f"{numel} elements"
            raise WrapperError(
                f"the future of a communication hook holds {got}, expected a tensor of {gradients.numel()} elements",
                "Return a future of a tensor like bucket.buffer().",
            )
        if aggregate.data_ptr() != gradients.data_ptr():
            gradients.copy_(aggregate.view(-1))

    return Then([future], take)
