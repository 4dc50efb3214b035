"""Optimisation passes: each takes a graph and returns an equivalent one that costs less.

They run in the order of `PASSES`. Each function's docstring says whether its results are equal to the last bit.
"""

from collections.abc import Callable

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
            arguments = [o.tensor if isinstance(o, Value) else o for o in current.inputs]
            result = current.primitive.forward(*arguments, **current.attributes)
            results = result if type(result) is tuple else (result,)
            for old, new in zip(current.outputs, results, strict=True):
                instead[old] = Value(old.shape, old.dtype, "constant", new)
        elif same is not None and same.shape == output.shape:
            instead[output] = same
        else:
            kept.append(current)
            makers[output] = current
    return graph.rewritten(kept, instead)


def _is_filled_with(operand: Operand, number: float) -> bool:
    if not isinstance(operand, Value):
        return operand == number
    return (
        operand.kind == "constant"
        and operand.tensor is not None
        and bool(torch.all(operand.tensor == number))
    )


def _unchanged(operation: Operation, makers: dict[Value, Operation]) -> Value | None:
    """The input that this operation returns unchanged except for its shape, if there is one."""
    first, *others = operation.inputs
    found: Operand | None = None
    if operation.name in _NEUTRAL:
        number = _NEUTRAL[operation.name]
        if _is_filled_with(others[0], number):
            found = first
        elif _is_filled_with(first, number):
            found = others[0]
    elif operation.name == "neg":
        maker = makers.get(first) if isinstance(first, Value) else None
        found = maker.inputs[0] if maker is not None and maker.name == "neg" else None
    elif operation.name in ("detach", "reshape", "expand"):
        found = first
    elif operation.name == "permute":
        dims = operation.attributes["dims"]
        found = first if dims == tuple(range(len(dims))) else None
    return found if isinstance(found, Value) else None


_NEUTRAL = {"mul": 1.0, "add": 0.0}


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
            fused = _fused(maker, second, operation)
            if fused is not None:
                merged.add(first)
                replaced[operation] = fused
                break
    kept = [replaced.get(o, o) for o in graph.operations if o.outputs[0] not in merged]
    return graph.rewritten(kept, {})


def _fused(maker: Operation, other: Operand, addition: Operation) -> Operation | None:
    """The result of `maker` + `other` as one operation; None if no kernel computes it."""
    kernel = _KERNELS.get(maker.name)
    if kernel is None or not isinstance(other, Value):
        return None
    if kernel is subtract:
        return Operation(kernel, (other, maker.inputs[0]), addition.outputs, {}, addition.is_backward)
    product = maker.outputs[0]
    channels, ndim = product.shape[1], 2 if kernel is matmul_add else 4
    is_bias = other.shape == ((channels,) if ndim == 2 else (1, channels, 1, 1))
    fits = addition.outputs[0].shape == product.shape and all(len(v.shape) == ndim for v in maker.values)
    if not (is_bias and fits):
        return None
    return Operation(kernel, (*maker.inputs, other), addition.outputs, maker.attributes, addition.is_backward)


_KERNELS: dict[str, Primitive] = {"neg": subtract, "matmul": matmul_add, "conv2d": conv2d_add}
"""What computes an operation and the addition that reads it."""


PASSES: dict[str, Callable[[Graph], Graph]] = {
    "constant folding": fold_constants,
    "common subexpressions": share_common,
    "order of matmul chains": order_matmul_chains,
    "dead code": drop_dead_code,
    "fusion": fuse,
}
