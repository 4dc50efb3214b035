"""Where every value of a graph lies: one arena, in which memory is used again when its value has been read.

Phase 1, roots: a view (reshape, permute, …) lies in the memory of what it looks at.
Phase 2, lives: a root lives from the operation that makes it to the last that reads it or a view of it.
Phase 3, sharing: an operation that works element by element may write over an input that dies there.
Phase 4, places: the largest first, each at the lowest place where nothing lies that lives at the same time.
"""

from dataclasses import dataclass
from typing import final

import torch

from shoal.autograd.static.graph import Graph, Operation, Value

ALIGNMENT = 64  # bytes: a cache line, and what vector kernels like

VIEWS = frozenset({"reshape", "permute", "expand", "narrow", "detach"})
IN_PLACE = frozenset(
    [
        "add",
        "subtract",
        "mul",
        "neg",
        "reciprocal",
        "pow",
        "exp",
        "log",
        "sqrt",
        "tanh",
        "sigmoid",
        "erf",
        "relu",
        "masked",
    ]
)
"""Operations that read each element before they write it, so that output and input may be the same memory."""
ALLOCATED = frozenset({"conv2d", "conv2d_add", "conv2d_input", "conv2d_weight"})
"""Operations whose kernels give memory of their own and cannot be told where to write."""


@final
@dataclass(frozen=True)
class MemoryPlan:
    """The places of all values."""

    roots: dict[Value, Value]
    """Whose memory a value lies in: its own, or that of what it is a view of."""
    offsets: dict[Value, int]
    """First byte in the arena of each root that lies there."""
    num_bytes: int
    """Length of the arena."""
    last_use: dict[Value, int]
    """The last operation that reads a root; the number of operations when it is read after the end."""
    owned: frozenset[Value]
    """Gradients that nothing else reads: handed to `value.grad` as they are; until then others use their place."""
    taken_over: dict[Value, Value]
    """Values written over one that a kernel allocated and that dies there; both lie outside the arena."""


@final
@dataclass
class _Tenant:
    """Values that follow one another in the same memory."""

    num_bytes: int
    born: int
    dies: int
    offset: int = 0


def plan_memory(graph: Graph) -> MemoryPlan:
    """Lay out a graph's values; see the phases above."""
    roots = roots_of(graph)
    last_use = _last_use(graph, roots)
    owned = _owned(graph, roots)
    allocated = {output for o in graph.operations if o.name in ALLOCATED for output in o.outputs}
    taken_over: dict[Value, Value] = {}
    tenants: dict[Value, _Tenant] = {}
    for index, operation in enumerate(graph.operations):
        for output in operation.outputs:
            if roots[output] is not output or output in allocated:
                continue
            last_use.setdefault(output, index)  # made and never read: it still needs a place to be made in
            dying = _writes_over(operation, output, roots, last_use, index) if output not in owned else None
            if dying is None:
                length = -(-output.num_bytes // ALIGNMENT) * ALIGNMENT
                tenants[output] = _Tenant(length, index, last_use[output])
            elif dying in allocated:
                taken_over[output] = dying
                allocated.add(output)
            else:
                tenants[output] = tenants[dying]
                tenants[output].dies = last_use[output]
    num_bytes = _place(list({id(tenant): tenant for tenant in tenants.values()}.values()))
    offsets = {value: tenant.offset for value, tenant in tenants.items()}
    return MemoryPlan(roots, offsets, num_bytes, last_use, owned, taken_over)


def _place(tenants: list[_Tenant]) -> int:
    """Phase 4; gives the length of the arena. Cost: the square of the number of tenants."""
    placed: list[_Tenant] = []
    end_of_arena = 0
    for tenant in sorted(tenants, key=lambda one: -one.num_bytes):
        # What an operation reads must not lie where it writes, so lives that touch count as lived together.
        beside = [other for other in placed if other.born <= tenant.dies and tenant.born <= other.dies]
        start = 0
        for other in sorted(beside, key=lambda one: one.offset):
            if other.offset - start >= tenant.num_bytes:
                break
            start = max(start, other.offset + other.num_bytes)
        tenant.offset = start
        placed.append(tenant)
        end_of_arena = max(end_of_arena, start + tenant.num_bytes)
    return end_of_arena


def is_view(operation: Operation, layouts: dict[Value, torch.Tensor]) -> bool:
    """Whether this operation only looks at its input's memory; a reshape of a permuted value must copy it."""
    if operation.name not in VIEWS:
        return False
    source = operation.inputs[0]
    assert isinstance(source, Value)
    return operation.name != "reshape" or bool(layouts[operation.outputs[0]]._is_view())


def layouts_of(graph: Graph) -> dict[Value, torch.Tensor]:
    """For each value a tensor without memory that has its shape and strides."""
    layouts: dict[Value, torch.Tensor] = {}

    def layout(value: Value) -> torch.Tensor:
        if value not in layouts:
            if value.tensor is not None:
                layouts[value] = torch.empty_strided(
                    value.shape, value.tensor.stride(), dtype=value.dtype, device="meta"
                )
            else:
                layouts[value] = torch.empty(value.shape, dtype=value.dtype, device="meta")
        return layouts[value]

    for operation in graph.operations:
        for operand in operation.inputs:
            if isinstance(operand, Value):
                layout(operand)
        if operation.name in VIEWS:
            source = operation.inputs[0]
            assert isinstance(source, Value)
            layouts[operation.outputs[0]] = operation.primitive.forward(
                layout(source), **operation.attributes
            )
    return layouts


def roots_of(graph: Graph) -> dict[Value, Value]:
    """Phase 1: whose memory each value lies in."""
    layouts = layouts_of(graph)
    roots: dict[Value, Value] = {}
    for operation in graph.operations:
        for operand in operation.inputs:
            if isinstance(operand, Value):
                roots.setdefault(operand, operand)
        for output in operation.outputs:
            source = operation.inputs[0]
            looks = isinstance(source, Value) and is_view(operation, layouts)
            roots[output] = roots[source] if looks and isinstance(source, Value) else output
    for value in (*graph.outputs, *(value for _, value in graph.deliveries)):
        roots.setdefault(value, value)
    return roots


def _last_use(graph: Graph, roots: dict[Value, Value]) -> dict[Value, int]:
    last_use: dict[Value, int] = {}
    for index, operation in enumerate(graph.operations):
        for operand in operation.inputs:
            if isinstance(operand, Value):
                last_use[roots[operand]] = index
    for value in graph.outputs:
        last_use[roots[value]] = len(graph.operations)
    for (
        _,
        value,
    ) in graph.deliveries:  # delivered, by copy or as it is, when it is made: alive at least until then
        last_use.setdefault(roots[value], len(graph.operations))
    return last_use


def _owned(graph: Graph, roots: dict[Value, Value]) -> frozenset[Value]:
    """Gradients that nothing else reads: their memory can be given away."""
    uses = graph.num_uses()
    allocated = {output for o in graph.operations if o.name in ALLOCATED for output in o.outputs}
    looked_at = {roots[value] for value in roots if roots[value] is not value}
    return frozenset(
        value
        for _, value in graph.deliveries
        if value.kind == "computed"
        and uses[value] == 1
        and roots[value] is value
        and value not in looked_at
        and value not in allocated
    )


def _writes_over(
    operation: Operation,
    output: Value,
    roots: dict[Value, Value],
    last_use: dict[Value, int],
    index: int,
) -> Value | None:
    """The root of an input that dies here and whose memory the output can take, element on element."""
    if operation.name not in IN_PLACE:
        return None
    operands = [operand for operand in operation.inputs if isinstance(operand, Value)]
    for operand in operands:
        root = roots[operand]
        dies = root.kind == "computed" and last_use[root] == index
        fits = operand is root and operand.shape == output.shape and operand.dtype == output.dtype
        # Another input that looks at the same memory in another order would be overwritten before it is read.
        alone = all(other is operand or roots[other] is not root for other in operands)
        if dies and fits and alone:
            return root
    return None
