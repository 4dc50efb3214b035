"""The memory of a pass through a model, found without computing anything: what forward saves, and the peak.

The pass is the real one: the model with the blocks that it recomputes, the loss, autograd. Its tensors have sizes and
no memory. In float32 they are on torch's meta device. Autocast has no effect there, so with `--precision bf16` they are
torch's fake tensors, which operations take for tensors of a CPU.

Beside what forward has saved, operations have inputs, outputs and gradients for a moment. Where few activations are
saved, these are the larger part: while a block is recomputed, its activations, the gradient of its output and the
temporaries of one operation are there together.
"""

import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shoal import models
from shoal.config.choices import options_of
from shoal.config.schema import RunConfig
from shoal.config.sections.model import LossConfig
from shoal.config.sections.values import Custom
from shoal.data.dataset import Batch, DataSet
from shoal.memory.process import memory_id
from shoal.models.builder import MODELS, on_meta
from shoal.models.losses import of_pair
from shoal.nested import call, leaves, mapped
from shoal.strategies.gradient_engine import AUTOCAST, backward_from
from shoal.training.memory.checkpointing import recomputed_blocks
from shoal.training.memory.offloading import SMALLEST
from shoal.training.memory.prepare import store_parameters

Autocast = Callable[[], AbstractContextManager[object]]
"""The context for forward and loss."""


@contextmanager
def sized_model(config: RunConfig, dataset: DataSet) -> Generator[tuple[nn.Module, Autocast]]:
    """The model of a run as it computes on a CPU, to be called inside, and the context of its passes."""
    if config.precision not in AUTOCAST or isinstance(config.model, Custom):
        yield without_memory(config, dataset), nullcontext
        return
    with FakeTensorMode():
        model = MODELS[config.model.name](dataset.input_shape, dataset.outputs, **options_of(config.model))
        store_parameters(config, model)
        yield model, lambda: torch.autocast("cpu", AUTOCAST[config.precision])


def without_memory(config: RunConfig, dataset: DataSet) -> nn.Module:
    """The model without weights, on torch's meta device; a user's own model is built as usual."""
    if isinstance(config.model, Custom):
        return models.build(config.model, dataset.input_shape, dataset.outputs, config.seed)
    return on_meta(config.model, dataset.input_shape, dataset.outputs)


def have_no_memory(tensors: Iterable[Tensor]) -> bool:
    """Whether all of these tensors have sizes alone."""
    return all(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors)


def sized_batch(batch: Batch, model: nn.Module) -> Batch:
    """Inputs and labels without memory, where the model is."""
    device = next((param.device for param in model.parameters()), torch.device("meta"))

    def empty(tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)

    return Batch(mapped(empty, batch.inputs), mapped(empty, batch.labels), batch.num_samples)


def activation_bytes(
    model: nn.Module, loss: LossConfig, batch: Batch, autocast: Autocast = nullcontext
) -> int | None:
    """Bytes that a forward pass saves, parameters not counted; None if the model has to run for that.

    The tensors of the model have sizes and no memory (`sized_model`).
    """
    params = [*model.parameters()]
    if not have_no_memory(params):
        return None
    sized = sized_batch(batch, model)
    known = {memory_id(param) for param in params}
    saved: dict[int, int] = {}
    recomputed: list[dict[int, int]] = []
    """The tensors that each recomputed block saves, by memory."""

    def saving_in(found: dict[int, int]) -> AbstractContextManager[object]:
        def pack(tensor: Tensor) -> Tensor:
            if memory_id(tensor) not in known:
                found[memory_id(tensor)] = tensor.untyped_storage().nbytes()
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def counted(forward: Any, *args: Any, **kwargs: Any) -> Any:
        recomputed.append({})
        with saving_in(recomputed[-1]):
            return forward(*args, **kwargs)

    blocks = recomputed_blocks(model)
    forwards = [block.forward for block in blocks]
    for block in blocks:
        block.forward = partial(counted, block.forward)
    try:
        with FusedAttention(), saving_in(saved), autocast():
            kept = models.build_loss(loss)(call(model, sized.inputs), sized.labels)
        del kept  # until here, no memory is used a second time
    finally:
        for block, forward in zip(blocks, forwards, strict=True):
            block.forward = forward
    # Of the block that is being recomputed, what is not kept anyway.
    largest = max((sum(each[at] for at in each.keys() - saved.keys()) for each in recomputed), default=0)
    return sum(saved.values()) + largest


class FusedAttention(TorchFunctionMode):
    """Gives attention the tensors of the fused kernels: on the meta device torch would take the plain one."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return _Attention.apply(*args[:3])
        return func(*args, **(kwargs or {}))


class _Attention(torch.autograd.Function):
    """The shapes of a fused attention: it saves its inputs, its output, and a number for each query."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        *batch, heads, length, _ = query.shape
        # In memory the heads of a position are together, so that the next layer reads the output without a copy.
        output = query.new_empty(*batch, length, heads, value.shape[-1]).transpose(-3, -2)
        ctx.save_for_backward(query, key, value, output, query.new_empty(query.shape[:-1]))
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        del gradient
        inputs = ctx.saved_tensors[:3]
        return tuple(torch.empty_like(each.transpose(-3, -2)).transpose(-3, -2) for each in inputs)


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
    sized = sized_batch(batch, model)
    live = _LiveTensors(kept)
    with FusedAttention(), live:
        with autocast(), _Elsewhere(kept).saving() if offloads else nullcontext():
            total, _ = of_pair(function(call(model, sized.inputs), sized.labels))
        backward_from(total, total.new_full((), 1.0))
    gradients = [param.grad for param in model.parameters() if param.grad is not None]
    peak = live.peak_without(gradients)
    model.zero_grad()
    return sum(leaf.nbytes for _, leaf in leaves((sized.inputs, sized.labels))) + peak


@final
class _LiveTensors(TorchDispatchMode):
    """Records when the memory of each tensor would be allocated, and when freed."""

    def __init__(self, kept: Iterable[Tensor]) -> None:
        super().__init__()
        self._there = {memory_id(tensor): -1 for tensor in kept}
        """Numbers of the memories in use, by identity; −1 for memories from before."""
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
        self._known: dict[int, weakref.ref[_AwayMemory]] = {}

    def saving(self) -> AbstractContextManager[object]:
        """Inside, what operations save is off-loaded."""
        return torch.autograd.graph.saved_tensors_hooks(
            self._pack, lambda saved: saved if isinstance(saved, Tensor) else saved()
        )

    def _pack(self, tensor: Tensor) -> Callable[[], Tensor] | Tensor:
        key, num_bytes = memory_id(tensor), tensor.untyped_storage().nbytes()
        if key in self._kept or num_bytes < SMALLEST:
            return tensor
        copy = known() if (known := self._known.get(key)) is not None else None
        if copy is None:
            copy = _AwayMemory(num_bytes, tensor.device)
            self._known[key] = weakref.ref(copy)
            # Another tensor may get the same identity once this one is freed.
            weakref.finalize(tensor.untyped_storage(), self._known.pop, key, None)
        offset = int(tensor.storage_offset())
        return partial(copy.read, tensor.dtype, tensor.shape, tensor.stride(), offset)


@final
class _AwayMemory:
    """A memory that is elsewhere; once it was read, it is here until no operation needs it."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        self._num_bytes, self._device = num_bytes, device
        self._here: Tensor | None = None

    def read(self, dtype: torch.dtype, shape: torch.Size, stride: tuple[int, ...], offset: int) -> Tensor:
        """A tensor in it."""
        if self._here is None:
            self._here = torch.empty(self._num_bytes, dtype=torch.uint8, device=self._device)
        return self._here.view(dtype).as_strided(shape, stride, offset)
