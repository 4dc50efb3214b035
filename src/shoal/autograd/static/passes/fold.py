"""Constant folding: compute at compile time what depends on neither inputs nor parameters, drop neutral operations."""

from collections.abc import Callable

import torch

from shoal.autograd.static.graph import Graph, Operand, Operation, Value


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


def _first(operation: Operation, _: dict[Value, Operation]) -> Operand | None:
    return operation.inputs[0]


def _same_order(operation: Operation, _: dict[Value, Operation]) -> Operand | None:
    dims = operation.attributes["dims"]
    return operation.inputs[0] if dims == tuple(range(len(dims))) else None


def _twice(operation: Operation, makers: dict[Value, Operation]) -> Operand | None:
    (a,) = operation.inputs
    maker = makers.get(a) if isinstance(a, Value) else None
    return maker.inputs[0] if maker is not None and maker.name == "neg" else None


_REPEATS: dict[str, Callable[[Operation, dict[Value, Operation]], Operand | None]] = {
    "mul": _neutral(1.0),
    "add": _neutral(0.0),
    "neg": _twice,
    "detach": _first,
    "reshape": _first,  # the caller checks that the shape is unchanged
    "expand": _first,
    "permute": _same_order,
}
