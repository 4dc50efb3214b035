"""The order of a product of several matrices: any order is correct, and costs differ by large factors."""

from math import prod
from typing import NamedTuple

import shoal.autograd.ops as ops
from shoal.autograd.static.graph import Graph, Operation, Value

MOST_FACTORS = 40  # in one chain: finding the best order is cubic in their number


class Factor(NamedTuple):
    """A matrix of a chain, transposed or not."""

    value: Value
    transposed: bool

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns as the chain sees them."""
        rows, columns = self.value.shape
        return (columns, rows) if self.transposed else (rows, columns)


def order_matmul_chains(graph: Graph) -> Graph:
    """Take each chain of matrix products in the order with the fewest multiplications.

    (A B) v costs n³ + n², A (B v) only 2 n². A chain is connected by products that nothing else reads. A new order
    changes the last bits: each element by at most about n·ε·Σ|terms|, as any reordered sum.
    """
    uses = graph.num_uses()
    makers = {operation.outputs[0]: operation for operation in graph.operations}
    inner = _inner_products(graph, uses, makers)
    kept: list[Operation] = []
    taken_apart: set[Value] = set()
    for operation in graph.operations:
        if not _is_product(operation) or operation.outputs[0] in inner:
            kept.append(operation)
            continue
        factors = _factors(Factor(operation.outputs[0], False), makers, inner, is_root=True)
        sizes = [factors[0].size[0], *(factor.size[1] for factor in factors)]
        split, cost = _best(sizes)
        as_written = _products(operation, makers, inner)
        if len(factors) > 2 and cost < sum(map(_cost, as_written)):
            products: list[Operation] = []
            _build(factors, split, 0, len(factors) - 1, operation, products)
            kept += products
            taken_apart.update(product.outputs[0] for product in as_written[1:])
        else:
            kept.append(operation)
    return graph.rewritten([o for o in kept if o.outputs[0] not in taken_apart], {})


def _inner_products(graph: Graph, uses: dict[Value, int], makers: dict[Value, Operation]) -> set[Value]:
    """Products that only another product reads, in chains of at most `MOST_FACTORS`."""
    inner: set[Value] = set()
    num_factors: dict[Value, int] = {}
    for operation in graph.operations:
        if not _is_product(operation):
            continue
        candidates = {
            value
            for value in operation.values
            if uses[value] == 1 and value in makers and value in num_factors
        }
        length = sum(num_factors[value] if value in candidates else 1 for value in operation.values)
        if length <= MOST_FACTORS:
            inner |= candidates
        num_factors[operation.outputs[0]] = length if length <= MOST_FACTORS else 2
    return inner


def num_multiplications(graph: Graph) -> int:
    """Multiplications in all matrix products of a graph: what the order of a chain changes."""
    return sum(_cost(o) for o in graph.operations if o.name in ("matmul", "matmul_add"))


def _cost(operation: Operation) -> int:
    """Multiplications of one matrix product."""
    a = operation.values[0]
    depth = a.shape[-2] if operation.attributes.get("transpose_a") else a.shape[-1]
    return prod(operation.outputs[0].shape) * depth


def _is_product(operation: Operation) -> bool:
    return operation.name == "matmul" and all(len(value.shape) == 2 for value in operation.values)


def _factors(
    factor: Factor, makers: dict[Value, Operation], inner: set[Value], is_root: bool = False
) -> list[Factor]:
    """The matrices whose product this is, from left to right; (A B)ᵀ is Bᵀ Aᵀ."""
    if not is_root and factor.value not in inner:
        return [factor]
    operation = makers[factor.value]
    a, b = operation.values
    left = Factor(a, bool(operation.attributes.get("transpose_a")) != factor.transposed)
    right = Factor(b, bool(operation.attributes.get("transpose_b")) != factor.transposed)
    pair = (right, left) if factor.transposed else (left, right)
    return [one for side in pair for one in _factors(side, makers, inner)]


def _products(operation: Operation, makers: dict[Value, Operation], inner: set[Value]) -> list[Operation]:
    """The products of a chain, the last one first."""
    below = [_products(makers[value], makers, inner) for value in operation.values if value in inner]
    return [operation, *(product for products in below for product in products)]


def _best(sizes: list[int]) -> tuple[dict[tuple[int, int], int], int]:
    """Where to split each part of the chain, and the cost of the whole: dynamic programming over parts."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(2, count + 1):
        for start in range(count - length + 1):
            end = start + length - 1
            options = {
                cut: cost[start, cut] + cost[cut + 1, end] + sizes[start] * sizes[cut + 1] * sizes[end + 1]
                for cut in range(start, end)
            }
            split[start, end] = min(options, key=options.__getitem__)
            cost[start, end] = options[split[start, end]]
    return split, cost[0, count - 1]


def _build(
    factors: list[Factor],
    split: dict[tuple[int, int], int],
    start: int,
    end: int,
    root: Operation,
    products: list[Operation],
) -> Factor:
    if start == end:
        return factors[start]
    cut = split[start, end]
    left = _build(factors, split, start, cut, root, products)
    right = _build(factors, split, cut + 1, end, root, products)
    is_root = (start, end) == (0, len(factors) - 1)
    output = root.outputs[0] if is_root else Value((left.size[0], right.size[1]), root.outputs[0].dtype)
    attributes = {"transpose_a": left.transposed, "transpose_b": right.transposed}
    products.append(Operation(ops.matmul, (left.value, right.value), (output,), attributes, root.is_backward))
    return Factor(output, False)
