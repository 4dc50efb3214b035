"""Torch's communication hooks: a program's own function that turns a bucket of gradients into the aggregate."""

from collections.abc import Callable, Mapping
from typing import Any, final

from torch import Tensor

from shoal.parallel.buckets.bucket import Bucket


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

    def take(self, aggregate: Tensor) -> None:
        """Copy the aggregate into the gradients."""
        gradients = self._bucket.gradients
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
        return HookWork(self._hook(self._state, shown), shown)
