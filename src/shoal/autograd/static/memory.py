"""The memory plan of a graph: one arena, in which memory is reused after the last read of its value.

Phase 1, roots: a view (reshape, permute, …) uses the memory of its base.
Phase 2, lifetimes: a root lives from the operation that writes it to the last that reads it or a view of it.
Phase 3, in place: an element-wise operation may overwrite an input whose lifetime ends there.
Phase 4, offsets: the largest value first, each at the lowest offset that is free during its whole lifetime.
"""

from dataclasses import dataclass
from typing import final

import torch

from shoal.autograd.static.graph import Graph, Operation, Value

ALIGNMENT = 64  # bytes: a cache line, and the alignment of vector kernels

VIEWS = frozenset({"reshape", "permute", "expand", "narrow", "detach"})
UNARY = ("neg", "reciprocal", "exp", "log", "sqrt", "tanh", "sigmoid", "erf")
"""Operations on each element of one tensor, under torch's names."""
IN_PLACE = frozenset({*UNARY, "add", "subtract", "mul", "pow", "relu", "masked"})
"""Operations that read each element before they write it: output and input may share memory."""
ALLOCATED = frozenset({"conv2d", "conv2d_add", "conv2d_input", "conv2d_weight"})
"""Operations whose kernels always allocate their output."""


@final
@dataclass(frozen=True)
class MemoryPlan:
    """Where each value is stored."""

    roots: dict[Value, Value]
    """The value whose memory a value uses: itself, or the base of a view."""
    offsets: dict[Value, int]
    """Offset in bytes of each root in the arena."""
    num_bytes: int
    """Length of the arena."""
    last_use: dict[Value, int]
    """The last operation that reads a root; the number of operations if it is read after the end."""
    owned: frozenset[Value]
    """Gradients that nothing else reads: they become `value.grad` without a copy."""
    taken_over: dict[Value, Value]
    """Values that overwrite a kernel's own allocation, which is outside the arena."""


@final
@dataclass
class _Tenant:
    """Values that use the same memory one after another."""

    num_bytes: int
    born: int
    dies: int
    offset: int = 0


def plan_memory(graph: Graph) -> MemoryPlan:
    """Plan the memory of a graph's values; the module's docstring lists the phases."""
    roots = roots_of(graph)
    last_use = _last_use(graph, roots)
    allocated = {output for o in graph.operations if o.name in ALLOCATED for output in o.outputs}
    owned = _owned(graph, roots, allocated)
    taken_over: dict[Value, Value] = {}
    tenants: dict[Value, _Tenant] = {}
    for index, operation in enumerate(graph.operations):
        for output in operation.outputs:
            if roots[output] is not output or output in allocated:
                continue
            last_use.setdefault(output, index)  # never read, but its operation still writes it
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
    """Phase 4; returns the length of the arena. Cost: quadratic in the number of tenants."""
    placed: list[_Tenant] = []
    end_of_arena = 0
    for tenant in sorted(tenants, key=lambda one: -one.num_bytes):
        # An operation must not write where it still reads, so lifetimes that touch count as overlapping.
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


def roots_of(graph: Graph) -> dict[Value, Value]:
    """Phase 1: the value whose memory each value uses."""
    layouts: dict[Value, torch.Tensor] = {}  # a meta tensor for each value, with its shape and strides
    roots: dict[Value, Value] = {}
    for operation in graph.operations:
        for value in operation.values:
            roots.setdefault(value, value)
            if value not in layouts:
                like = torch.empty(value.shape, device="meta") if value.tensor is None else value.tensor
                layouts[value] = torch.empty_strided(
                    value.shape, like.stride(), dtype=value.dtype, device="meta"
                )
        is_view = operation.name in VIEWS
        if is_view:
            seen = operation.primitive.forward(layouts[operation.values[0]], **operation.attributes)
            layouts[operation.outputs[0]] = seen
            # A reshape of a permuted value must copy.
            is_view = operation.name != "reshape" or bool(seen._is_view())
        for output in operation.outputs:
            roots[output] = roots[operation.values[0]] if is_view else output
    for value in (*graph.outputs, *(value for _, value in graph.deliveries)):
        roots.setdefault(value, value)
    return roots


def _last_use(graph: Graph, roots: dict[Value, Value]) -> dict[Value, int]:
    last_use: dict[Value, int] = {}
    for index, operation in enumerate(graph.operations):
        for value in operation.values:
            last_use[roots[value]] = index
    for value in graph.outputs:
        last_use[roots[value]] = len(graph.operations)
    for _, value in graph.deliveries:  # a gradient is delivered right after it is written
        last_use.setdefault(roots[value], len(graph.operations))
    return last_use


def _owned(graph: Graph, roots: dict[Value, Value], allocated: set[Value]) -> frozenset[Value]:
    """Gradients that nothing else reads: `value.grad` can take over their memory."""
    uses = graph.num_uses()
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
    """The root of an input whose lifetime ends here and whose memory the output can take over."""
    if operation.name not in IN_PLACE:
        return None
    operands = operation.values
    for operand in operands:
        root = roots[operand]
        dies = root.kind == "computed" and last_use[root] == index
        fits = operand is root and operand.shape == output.shape and operand.dtype == output.dtype
        # Another view of the same memory, in another order, would be overwritten before it is read.
        alone = all(other is operand or roots[other] is not root for other in operands)
        if dies and fits and alone:
            return root
    return None
