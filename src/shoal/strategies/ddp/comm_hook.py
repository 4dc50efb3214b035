"""Torch's communication hooks: a program's own function that turns a bucket of gradients into the aggregate."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.errors import ArgumentError, ConfigError, WrapperError
from shoal.strategies.buckets.bucket import Bucket


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

    def take(self, aggregate: Any) -> None:
        """Copy the aggregate into the gradients."""
        gradients = self._bucket.gradients
        numel = aggregate.numel() if isinstance(aggregate, Tensor) else None
        if numel != gradients.numel():
            got = type(aggregate).__name__ if numel is None else f"{numel} elements"
            raise WrapperError(
                f"the future of a communication hook holds {got}, expected a tensor of {gradients.numel()} elements",
                "Return a future of a tensor like bucket.buffer().",
            )
        if aggregate.data_ptr() != gradients.data_ptr():
            gradients.copy_(aggregate.view(-1))

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
    written = [
        ("bucket", bucket.annotation if bucket is not None else inspect.Parameter.empty, "dist.GradBucket"),
        ("result", signature.return_annotation, "torch.futures.Future[torch.Tensor]"),
    ]
    right = {"bucket": dist.GradBucket, "result": torch.futures.Future[torch.Tensor]}
    for what, annotation, expected in written:
        if annotation not in (inspect.Parameter.empty, right[what]):
            raise ConfigError(
                f"the annotation of a communication hook's {what} is {annotation!r}, expected {expected}",
                "Correct or remove the annotation.",
            )


@final
class HookWork:
    """An exchange by a hook: over when its future is done and the result is in the bucket."""

    def __init__(self, future: Any, bucket: HookBucket) -> None:
        self._future, self._bucket = future, bucket
        self._over = False

    def wait(self) -> None:
        """Wait for the future, and copy its value into the bucket."""
        if self._over:
            return
        self._over = True
        value = self._future.wait()
        self._bucket.take(value[0] if isinstance(value, list | tuple) else value)

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._over or self._future.done()


@final
class HookSender:
    """Sends buckets by calling a hook."""

    def __init__(self, hook: Hook, state: object, params: Mapping[str, Tensor]) -> None:
        self._hook, self._state, self._params = hook, state, params

    def send(self, bucket: Bucket) -> HookWork:
        """Call the hook with a full bucket."""
        shown = HookBucket(bucket, [self._params[name] for name in bucket.names])
        future = self._hook(self._state, shown)
        if not hasattr(future, "wait") or not hasattr(future, "done"):
            raise WrapperError(
                f"a communication hook returned a value of type {type(future).__name__}, expected a future of a tensor",
                "Return dist.all_reduce(…, async_op=True).get_future(), or a torch.futures.Future with a result.",
            )
        return HookWork(future, shown)
