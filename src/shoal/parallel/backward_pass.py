"""Where a backward pass through a module begins and ends: outputs tell it first."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, final

import torch
from torch import Tensor

_NONE = -1


def _current() -> int:
    """The number of the backward pass that is running in this thread: the innermost one."""
    return torch._C._current_graph_task_id()  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType, reportAttributeAccessIssue]


@final
class BackwardPass:
    """Calls `over` once when the pass has ended that `begin` was called in.

    Backward may run inside of backward: reentrant checkpointing does so for every block, and gradients become final in
    there. The pass that counts is the outermost. It is the one that reaches the module's outputs, before any block: so
    `begin` is called by hooks on outputs, and by the first gradient where none was reached (a penalty on gradients).

    A pass that ends with an error never calls `over`: `abandon` is called when that is found out, at the next forward
    or backward pass.
    """

    def __init__(self, over: Callable[[], None], abandon: Callable[[], None]) -> None:
        self._over, self._abandon = over, abandon
        self._number = _NONE

    def begin(self, outermost: bool = False) -> None:
        """A pass is running: the outermost one, or any inside the one that has begun."""
        number = _current()
        if number == self._number or (self._number != _NONE and not outermost):
            return
        if self._number != _NONE:
            self._abandon()
        self._number = number
        torch.autograd.Variable._execution_engine.queue_callback(self._end)  # pyright: ignore[reportPrivateUsage]

    def forget_failed(self) -> None:
        """Forward is about to run: a pass that has begun and is not running has failed."""
        if self._number != _NONE and _current() == _NONE:
            self._number = _NONE
            self._abandon()

    def _end(self) -> None:
        self._number = _NONE
        self._over()


def tensors_in(output: Any) -> Iterator[Tensor]:
    """The tensors in what a module gives: alone, or in tuples, lists, mappings and dataclasses.

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
