"""What a forward pass saves for backward, counted without computing anything."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from shoal import models
from shoal.config.sections.model import LossConfig
from shoal.data.dataset import Batch
from shoal.memory.process import memory_id
from shoal.memory.sized_model import Autocast, have_no_memory, sized_batch
from shoal.training.memory.checkpointing import recomputed_blocks


def activation_bytes(
    model: nn.Module, loss: LossConfig, batch: Batch, autocast: Autocast = nullcontext
) -> int | None:
    """Bytes that a forward pass saves, parameters not counted; None if the model has to run for that.

    The tensors of the model have sizes and no memory (`sized_model.py`).
    """
    params = [*model.parameters()]
    if not have_no_memory(params):
        return None
    inputs, labels = sized_batch(batch, model)
    saved: dict[int, int] = {}
    known = {memory_id(param) for param in params}

    def pack(tensor: Tensor) -> Tensor:
        if memory_id(tensor) not in known:
            saved[memory_id(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    function = models.build_loss(loss)
    with FusedAttention(), _recomputed(model, known) as again:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast():
            kept = function(model(inputs), labels)
        del kept  # until here, no memory is used a second time
    # Of the block that is being recomputed, what is not kept anyway.
    largest = max((sum(each[at] for at in each.keys() - saved.keys()) for each in again), default=0)
    return sum(saved.values()) + largest


@contextmanager
def _recomputed(model: nn.Module, known: set[int]) -> Generator[list[dict[int, int]]]:
    """What each recomputed block would save, by memory, filled while the model is called inside."""
    found: list[dict[int, int]] = []
    blocks = recomputed_blocks(model)
    forwards = [block.forward for block in blocks]

    def counted(forward: Any, *args: Any, **kwargs: Any) -> Any:
        saved: dict[int, int] = {}
        found.append(saved)

        def pack(tensor: Tensor) -> Tensor:
            if memory_id(tensor) not in known:
                saved[memory_id(tensor)] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            return forward(*args, **kwargs)

    for block in blocks:
        block.forward = partial(counted, block.forward)
    try:
        yield found
    finally:
        for block, forward in zip(blocks, forwards, strict=True):
            block.forward = forward


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
