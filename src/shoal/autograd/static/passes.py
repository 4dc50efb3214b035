"""Optimisation passes: each takes a graph and returns an equivalent one that costs less.

They run in the order of `PASSES`. Each function's docstring says whether its results are equal to the last bit.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal.autograd.static.graph import Graph, Operand, Operation, Value
from shoal.autograd.static.matmul_order import order_matmul_chains
from shoal.autograd.tape import Primitive, primitive


def fold_constants(graph: Graph) -> Graph:
    """Results are equal to the last bit.

    Phase 1: compute operations whose inputs are all constants.
    Phase 2: replace x · 1, x + 0, −(−x), a reshape to the same shape, and `detach` (which has no effect after
    derivatives have been taken) by x.
    """
    instead: dict[Value, Value] = {}
    kept: list[Operation] = []
    makers: dict[Value, Operation] = {}
    for operation in graph.operations:
        current = operation.reading(instead)
        output = current.outputs[0]
        same = _unchanged(current, makers)
        if all(value.kind == "constant" for value in current.values):
            instead |= _computed_now(current)
        elif same is not None and same.shape == output.shape:
            instead[output] = same
        else:
            kept.append(current)
            makers[output] = current
    return graph.rewritten(kept, instead)


def _computed_now(operation: Operation) -> dict[Value, Value]:
    arguments = [o.tensor if isinstance(o, Value) else o for o in operation.inputs]
    result = operation.primitive.forward(*arguments, **operation.attributes)
    results = result if type(result) is tuple else (result,)
    return {
        old: Value(old.shape, old.dtype, "constant", new)
        for old, new in zip(operation.outputs, results, strict=True)
    }


def _is_filled_with(operand: Operand, number: float) -> bool:
    if not isinstance(operand, Value):
        return operand == number
    return (
        operand.kind == "constant"
        and operand.tensor is not None
        and bool(torch.all(operand.tensor == number))
    )


def _unchanged(operation: Operation, makers: dict[Value, Operation]) -> Value | None:
    """The input that this operation returns unchanged, if there is one."""
    rule = _REPEATS.get(operation.name)
    found = rule(operation, makers) if rule else None
    return found if isinstance(found, Value) else None


def _neutral(number: float) -> Callable[[Operation, dict[Value, Operation]], Operand | None]:
    def rule(operation: Operation, _: dict[Value, Operation]) -> Operand | None:
        a, b = operation.inputs
        if _is_filled_with(b, number):
            return a
        return b if _is_filled_with(a, number) else None

    return rule


def _twice(operation: Operation, makers: dict[Value, Operation]) -> Operand | None:
    (a,) = operation.inputs
    maker = makers.get(a) if isinstance(a, Value) else None
    return maker.inputs[0] if maker is not None and maker.name == "neg" else None


_REPEATS: dict[str, Callable[[Operation, dict[Value, Operation]], Operand | None]] = {
    "mul": _neutral(1.0),
    "add": _neutral(0.0),
    "neg": _twice,
    # The caller checks that the shape is unchanged.
    **dict.fromkeys(("detach", "reshape", "expand"), lambda operation, _: operation.inputs[0]),
    "permute": lambda operation, _: (
        operation.inputs[0]
        if operation.attributes["dims"] == tuple(range(len(operation.attributes["dims"])))
        else None
    ),
}


def share_common(graph: Graph) -> Graph:
    """Compute each operation on the same inputs once. Results are equal to the last bit."""
    instead: dict[Value, Value] = {}
    seen: dict[object, Operation] = {}
    kept: list[Operation] = []
    for operation in graph.operations:
        inputs = operation.reading(instead).inputs
        operands = tuple([("value", id(o)) if isinstance(o, Value) else ("number", o) for o in inputs])
        key = (operation.name, operands, tuple(sorted(operation.attributes.items())))
        if key in seen:
            instead |= dict(zip(operation.outputs, seen[key].outputs, strict=True))
        else:
            seen[key] = operation
            kept.append(operation)
    return graph.rewritten(kept, instead)


def drop_dead_code(graph: Graph) -> Graph:
    """Keep only what an output or a gradient depends on. Results are equal to the last bit."""
    needed = {*graph.outputs, *(value for _, value in graph.deliveries)}
    kept: list[Operation] = []
    for operation in reversed(graph.operations):
        if any(output in needed for output in operation.outputs):
            kept.append(operation)
            needed.update(operation.values)
    return graph.rewritten(kept[::-1], {})


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


PASSES: dict[str, Callable[[Graph], Graph]] = {
    "constant folding": fold_constants,
    "common subexpressions": share_common,
    "order of matmul chains": order_matmul_chains,
    "dead code": drop_dead_code,
    "fusion": fuse,
}
