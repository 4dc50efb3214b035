import torch

from shoal.autograd import ops
from shoal.autograd.static.graph import trace
from shoal.autograd.static.passes import drop_dead_code, share_common


def names(graph):
    return [operation.name for operation in graph.operations]


def test_a_repeated_expression_is_computed_once():
    graph = share_common(trace(lambda x: ops.exp(x * 2.0) + ops.exp(x * 2.0), [torch.ones(3)]))
    assert names(graph) == ["mul", "exp", "add"]


def test_the_same_operation_with_other_options_or_numbers_stays():
    graph = share_common(
        trace(
            lambda x: ops.sum(x, dims=(0,), keep=True) + ops.sum(x, dims=(1,), keep=True) + x * 2.0 + x * 3.0,
            [torch.ones(3, 3)],
        )
    )
    assert names(graph).count("sum") == 2
    assert names(graph).count("mul") == 2


def test_unread_results_are_dropped():
    def function(x):
        ops.exp(x)
        return x * 2.0

    assert names(drop_dead_code(trace(function, [torch.ones(3)]))) == ["mul"]
