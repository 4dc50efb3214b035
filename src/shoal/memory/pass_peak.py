"""The peak of the tensors in a forward and backward pass, found without computing anything.

The pass is the real one: the model with the blocks that it recomputes, the loss, autograd. Its tensors have sizes and
no memory (`sized_model.py`); a dispatch mode sees each of them come, and a weak reference sees it go.

Beside what forward has saved, operations have inputs, outputs and gradients for a moment. Where few activations are
saved, these are the larger part: while a block is recomputed, its activations, the gradient of its output and the
temporaries of one operation are there together.
"""

import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shoal import models
from shoal.config.sections.model import LossConfig
from shoal.data.dataset import Batch
from shoal.memory.activations import FusedAttention
from shoal.memory.process import memory_id
from shoal.memory.sized_model import Autocast, have_no_memory, sized_batch
from shoal.strategies.step import backward_from
from shoal.training.memory.offloading import SMALLEST


def pass_peak(
    model: nn.Module,
    loss: LossConfig,
    batch: Batch,
    offloads: bool = False,
    autocast: Autocast = nullcontext,
) -> int | None:
    """Bytes of tensors at the peak of a pass; None if the model has to run for that.

    Parameters, buffers and gradients of parameters are not counted. With `offloads`, activations wait elsewhere.
    """
    kept = [*model.parameters(), *model.buffers()]
    if not have_no_memory(kept):
        return None
    function = models.build_loss(loss)
    inputs, labels = sized_batch(batch, model)
    live = _LiveTensors(kept)
    with FusedAttention(), live:
        with autocast(), _Elsewhere(kept).saving() if offloads else nullcontext():
            total = function(model(inputs), labels)
        backward_from(total, total.new_full((), 1.0))
    gradients = [param.grad for param in model.parameters() if param.grad is not None]
    peak = live.peak_without(gradients)
    model.zero_grad()
    return inputs.nbytes + labels.nbytes + peak


@final
class _LiveTensors(TorchDispatchMode):
    """Records when the memory of each tensor would be allocated, and when freed."""

    def __init__(self, kept: Iterable[Tensor]) -> None:
        super().__init__()
        self._there = {memory_id(tensor): -1 for tensor in kept}
        """Numbers of the memories that are there, by identity; those that were there before have none."""
        self._references: dict[int, weakref.ref[Any]] = {}
        self._changes: list[tuple[int, int]] = []
        """Number of a memory, and bytes that it adds; below zero when it is freed."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for each in tree_leaves(found):
            if isinstance(each, Tensor):
                self._add(each)
        return found

    def _add(self, tensor: Tensor) -> None:
        key, storage = memory_id(tensor), tensor.untyped_storage()
        if key in self._there or not storage.nbytes():
            return
        number, num_bytes = len(self._changes), storage.nbytes()
        self._changes.append((number, num_bytes))
        self._there[key] = number

        def free(_: object) -> None:
            self._changes.append((number, -num_bytes))
            del self._there[key], self._references[number]

        self._references[number] = weakref.ref(storage, free)

    def peak_without(self, others: Iterable[Tensor]) -> int:
        """Bytes at the peak, these tensors not counted."""
        left_out = {self._there[memory_id(tensor)] for tensor in others}
        now = peak = 0
        for number, num_bytes in self._changes:
            now += num_bytes if number not in left_out else 0
            peak = max(peak, now)
        return peak


@final
class _Elsewhere:
    """Off-loading without bytes: a saved tensor is gone until an operation needs it, and then new."""

    def __init__(self, kept: Iterable[Tensor]) -> None:
        self._kept = {memory_id(tensor) for tensor in kept}
        self._known: dict[int, weakref.ref[_Copy]] = {}

    def saving(self) -> AbstractContextManager[object]:
        """Inside, what operations save is off-loaded."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> "_View | Tensor":
        key, num_bytes = memory_id(tensor), tensor.untyped_storage().nbytes()
        if key in self._kept or num_bytes < SMALLEST:
            return tensor
        copy = known() if (known := self._known.get(key)) is not None else None
        if copy is None:
            copy = _Copy(num_bytes, tensor.device)
            self._known[key] = weakref.ref(copy)
            # Another tensor may get the same identity once this one is freed.
            weakref.finalize(tensor.untyped_storage(), self._known.pop, key, None)
        return _View(copy, tensor.dtype, tensor.shape, tensor.stride(), int(tensor.storage_offset()))

    @staticmethod
    def _unpack(saved: "_View | Tensor") -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        whole = saved.copy.read().view(saved.dtype)
        return whole.as_strided(saved.shape, saved.stride, saved.offset)


@final
class _Copy:
    """A memory that is elsewhere; once it was read, it is here until no operation needs it."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._num_bytes, self._device = num_bytes, device
        self._here: Tensor | None = None

    def read(self) -> Tensor:
        if self._here is None:
            self._here = torch.empty(self._num_bytes, dtype=torch.uint8, device=self._device)
        return self._here


@dataclass(frozen=True)
class _View:
    """A saved tensor: which part of which memory it is."""

    copy: _Copy
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
