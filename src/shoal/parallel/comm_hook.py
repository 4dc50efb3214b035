"""Torch's communication hooks: a program's own way to turn a bucket of gradients into the aggregate."""

from collections.abc import Callable, Sequence
from typing import Any, final

from torch import Tensor


@final
class HookBucket:
    """What a hook is handed: the questions that torch's `GradBucket` answers."""

    def __init__(
        self, index: int, is_last: bool, flat: Tensor, views: Sequence[Tensor], params: Sequence[Tensor]
    ) -> None:
        self._index, self._is_last = index, is_last
        self._flat, self._views, self._params = flat, list(views), list(params)
        self._shown = flat

    def index(self) -> int:
        """Its place among the buckets of a backward pass."""
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last one of the pass."""
        return self._is_last

    def buffer(self) -> Tensor:
        """All gradients of the bucket, as one flat tensor."""
        return self._shown

    def set_buffer(self, buffer: Tensor) -> None:
        """Show another tensor from now on: hooks around hooks hand theirs on, in another dtype perhaps."""
        self._shown = buffer

    def take(self, aggregate: Tensor) -> None:
        """Make this the gradients."""
        if aggregate.data_ptr() != self._flat.data_ptr():
            self._flat.copy_(aggregate.view(-1))

    def gradients(self) -> list[Tensor]:
        """The same, each in its parameter's shape."""
        return self._views

    def parameters(self) -> list[Tensor]:
        """Whose gradients these are."""
        return self._params


Hook = Callable[[Any, Any], Any]
"""`hook(state, bucket)` gives a future of the aggregate: a tensor like the bucket's buffer."""


@final
class HookWork:
    """An exchange by a hook: over when its future is, and the result is in the bucket."""

    def __init__(self, future: Any, bucket: HookBucket) -> None:
        self._future, self._bucket = future, bucket
        self._over = False

    def wait(self) -> None:
        """Wait for the future, and take its value."""
        if self._over:
            return
        self._over = True
        value = self._future.wait()
        self._bucket.take(value[0] if isinstance(value, list | tuple) else value)

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._over or self._future.done()
