"""Compute equal things once, and unread things not at all."""

from shoal.autograd.static.graph import Graph, Operation, Value


def share_common(graph: Graph) -> Graph:
    """An operation that stands in the graph already, on the same inputs, is read instead of repeated. Bit for bit."""
    instead: dict[Value, Value] = {}
    seen: dict[object, Operation] = {}
    kept: list[Operation] = []
    for operation in graph.operations:
        inputs = [instead.get(o, o) if isinstance(o, Value) else o for o in operation.inputs]
        operands = tuple([("value", id(o)) if isinstance(o, Value) else ("number", o) for o in inputs])
        key = (operation.name, operands, tuple(sorted(operation.attributes.items())))
        if key in seen:
            instead |= dict(zip(operation.outputs, seen[key].outputs, strict=True))
        else:
            seen[key] = operation
            kept.append(operation)
    return graph.rewritten(kept, instead)


def drop_dead_code(graph: Graph) -> Graph:
    """Only what an output or a gradient depends on stays. Bit for bit."""
    needed = {*graph.outputs, *(value for _, value in graph.deliveries)}
    kept: list[Operation] = []
    for operation in reversed(graph.operations):
        if any(output in needed for output in operation.outputs):
            kept.append(operation)
            needed.update(o for o in operation.inputs if isinstance(o, Value))
    return graph.rewritten(kept[::-1], {})
