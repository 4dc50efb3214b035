"""The beginning and the end of a backward pass through a module."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, final

import torch
from torch import Tensor

NO_PASS = -1


def current_pass() -> int:
    """The number of the innermost backward pass that runs in this thread, or `NO_PASS`."""
    return torch._C._current_graph_task_id()  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]


@final
class BackwardPass:
    """Calls `over` once, at the end of the pass in which `begin` was called.

    Backward may run inside backward: reentrant checkpointing does so for every block, and gradients become final there.
    The outermost pass counts. It reaches the module's outputs before any block, so hooks on outputs call `begin`, and
    so does the first gradient if no output was reached (a penalty on gradients).

    A pass that ends with an error never calls `over`: the next forward or backward pass notices, and calls
    `abandon`.
    """

    def __init__(self, over: Callable[[], None], abandon: Callable[[], None]) -> None:
        self._over, self._abandon = over, abandon
        self._number = NO_PASS

    def begin(self, outermost: bool = False) -> None:
        """A pass is running: the outermost one, or any pass inside it."""
        number = current_pass()
        if number == self._number or (self._number != NO_PASS and not outermost):
            return
        if self._number != NO_PASS:
            self._abandon()
        self._number = number
        torch.autograd.Variable._execution_engine.queue_callback(self._end)  # pyright: ignore[reportPrivateUsage]

    def forget_failed(self) -> None:
        """Forward is about to run: a pass that began and no longer runs has failed."""
        if self._number != NO_PASS and current_pass() == NO_PASS:
            self._number = NO_PASS
            self._abandon()

    def _end(self) -> None:
        self._number = NO_PASS
        self._over()


def hook_tensors(output: Any, hook: Callable[[Tensor], None]) -> bool:
    """Have backward call `hook` when it reaches a tensor in a module's output; whether there is any tensor."""
    tensors = [*tensors_in(output)]
    for tensor in tensors:
        if tensor.requires_grad:
            tensor.register_hook(hook)
    return bool(tensors)


def tensors_in(output: Any) -> Iterator[Tensor]:
    """The tensors in a module's output: alone, or in tuples, lists, mappings and dataclasses.

    >>> [tensor.item() for tensor in tensors_in({"a": torch.tensor(1), "b": [torch.tensor(2), "text"]})]
    [1, 2]
    """
    if isinstance(output, Tensor):
        yield output
        return
    inside: Any = ()
    if isinstance(output, list | tuple):
        inside = output
    elif isinstance(output, Mapping):
        inside = output.values()
    elif is_dataclass(output):
        inside = (getattr(output, field.name) for field in fields(output))
    for one in inside:
        yield from tensors_in(one)
