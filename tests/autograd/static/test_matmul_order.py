import pytest
import torch

from shoal.autograd import ops, static
from shoal.autograd.static.graph import trace
from shoal.autograd.static.matmul_order import num_multiplications, order_matmul_chains


def shapes(function, *examples):
    graph = order_matmul_chains(trace(function, examples))
    return [operation.outputs[0].shape for operation in graph.operations]


def test_matrix_times_matrix_times_vector_starts_with_the_vector():
    a, b, v = torch.ones(20, 20), torch.ones(20, 20), torch.ones(20, 1)
    assert shapes(lambda a, b, v: (a @ b) @ v, a, b, v) == [(20, 1), (20, 1)]


def test_the_multiplications_saved_are_counted():
    examples = [torch.ones(20, 20), torch.ones(20, 20), torch.ones(20, 1)]
    graph = trace(lambda a, b, v: (a @ b) @ v, examples)
    assert num_multiplications(graph) == 20**3 + 20**2
    assert num_multiplications(order_matmul_chains(graph)) == 2 * 20**2


def test_a_product_that_something_else_reads_stays_as_written():
    a, b, v = torch.ones(20, 20), torch.ones(20, 20), torch.ones(20, 1)

    def both(a, b, v):
        product = a @ b
        return product @ v, product

    assert shapes(both, a, b, v) == [(20, 20), (20, 1)]


def test_the_best_order_of_four_is_not_from_either_end():
    sizes = [(3, 50), (50, 2), (2, 60), (60, 4)]
    matrices = [torch.ones(size) for size in sizes]
    assert shapes(lambda a, b, c, d: ((a @ b) @ c) @ d, *matrices) == [(3, 2), (2, 4), (3, 4)]


@pytest.mark.parametrize("transpose", [False, True])
def test_transposed_products_keep_their_value(transpose):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(6, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    v = torch.randn(6, 1, generator=generator, dtype=torch.float64)

    def function(a, b, v):
        return ops.matmul(ops.matmul(a, b, transpose_b=True), v, transpose_a=transpose)

    want = (a @ b.mT).mT @ v if transpose else a @ b.mT @ v
    torch.testing.assert_close(static.compile(function, a, b, v)(a, b, v), want, rtol=1e-12, atol=1e-12)
    assert shapes(function, a, b, v) == [(6, 1), (6, 1)]


def test_a_very_long_chain_compiles():
    matrix = torch.eye(2)

    def function(a):
        product = a
        for _ in range(1500):
            product = product @ a
        return product

    assert torch.equal(static.compile(function, matrix)(matrix), matrix)
