"""Common subexpressions and dead code."""

from shoal.autograd.static.graph import Graph, Operation, Value


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
