"""Fusion: two operations in one kernel, which saves writing a tensor and reading it again."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal.autograd.static.graph import Graph, Operation, Value
from shoal.autograd.tape import Primitive, primitive


@primitive("{} - {}")
def subtract(a: Tensor, b: Tensor) -> Tensor:
    """a − b in one pass instead of a + (−b) in two; equal to the last bit."""
    return a - b


@primitive()
def matmul_add(
    a: Tensor, b: Tensor, bias: Tensor, *, transpose_a: bool = False, transpose_b: bool = False
) -> Tensor:
    """A B + bias, where the sum starts from the bias: another order, within n·ε·Σ|terms|."""
    if transpose_b and not transpose_a:  # as Cᵀ = B Aᵀ, for the reason given at `matmul`
        c = a.new_empty(a.shape[0], b.shape[0])
        torch.addmm(bias.unsqueeze(1), b, a.mT, out=c.mT)
        return c
    return torch.addmm(bias, a.mT if transpose_a else a, b.mT if transpose_b else b)


@primitive()
def conv2d_add(
    x: Tensor, w: Tensor, bias: Tensor, *, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """x ⋆ w + bias, where the convolution starts from the bias; within n·ε·Σ|terms|."""
    return F.conv2d(x, w, bias.reshape(-1), stride, padding)


def fuse(graph: Graph) -> Graph:
    """Rewrite a + (−b), A B + bias and x ⋆ w + bias if nothing else reads the intermediate value."""
    uses = graph.num_uses()
    makers = {operation.outputs[0]: operation for operation in graph.operations}
    merged: set[Value] = set()
    replaced: dict[Operation, Operation] = {}
    for operation in graph.operations:
        if operation.name != "add":
            continue
        for first, second in (operation.inputs, operation.inputs[::-1]):
            maker = makers.get(first) if isinstance(first, Value) else None
            if maker is None or not isinstance(first, Value) or uses[first] != 1:
                continue
            rule = _FUSIONS.get(maker.name)
            fused = rule(maker, second, operation) if rule else None
            if fused is not None:
                merged.add(first)
                replaced[operation] = fused
                break
    kept = [replaced.get(o, o) for o in graph.operations if o.outputs[0] not in merged]
    return graph.rewritten(kept, {})


def _subtraction(maker: Operation, other: Any, addition: Operation) -> Operation | None:
    if not isinstance(other, Value):
        return None
    return _fused(subtract, (other, maker.inputs[0]), {}, addition)


def _with_bias(kernel: Primitive) -> Callable[[Operation, Any, Operation], Operation | None]:
    def rule(maker: Operation, other: Any, addition: Operation) -> Operation | None:
        product = maker.outputs[0]
        channels = product.shape[1]
        row = (channels,) if kernel is matmul_add else (1, channels, 1, 1)
        is_bias = isinstance(other, Value) and other.shape == row
        if (
            not is_bias
            or addition.outputs[0].shape != product.shape
            or any(len(o.shape) < 2 for o in maker.values)
        ):
            return None
        if kernel is matmul_add and any(len(o.shape) != 2 for o in maker.values):
            return None
        return _fused(kernel, (*maker.inputs, other), maker.attributes, addition)

    return rule


def _fused(
    kernel: Primitive, inputs: tuple[Any, ...], attributes: dict[str, Any], addition: Operation
) -> Operation:
    return Operation(kernel, inputs, addition.outputs, attributes, addition.is_backward)


_FUSIONS: dict[str, Callable[[Operation, Any, Operation], Operation | None]] = {
    "neg": _subtraction,
    "matmul": _with_bias(matmul_add),
    "conv2d": _with_bias(conv2d_add),
}
