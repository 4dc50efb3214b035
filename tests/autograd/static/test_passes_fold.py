import torch

from shoal.autograd import grad, ops
from shoal.autograd.static.graph import trace
from shoal.autograd.static.passes import drop_dead_code, fold_constants


def names(function, *examples):
    return [operation.name for operation in fold_constants(trace(function, examples)).operations]


def test_operations_on_constants_are_computed_now():
    graph = fold_constants(trace(lambda x: grad((x * x).sum(), [x])[0], [torch.ones(3)]))
    assert "expand" not in [operation.name for operation in graph.operations]


def test_multiplication_by_one_and_addition_of_zero_vanish():
    assert names(lambda x: x * 1.0 + 0.0 + x, torch.ones(3)) == ["add"]


def test_the_seed_of_ones_vanishes_from_the_gradient_of_a_sum():
    graph = drop_dead_code(
        fold_constants(trace(lambda x, y: grad((x * y).sum(), [x])[0], [torch.ones(3)] * 2))
    )
    assert graph.operations == ()
    assert graph.outputs == (graph.inputs[1],)


def test_a_number_that_broadcasts_is_kept():
    graph = fold_constants(trace(lambda x: ops.mul(x, torch.ones(2, 3)), [torch.ones(3)]))
    assert [operation.name for operation in graph.operations] == ["mul"]


def test_double_negation_shapes_and_detach_vanish():
    assert names(
        lambda x: ops.neg(ops.neg(ops.detach(ops.reshape(x, shape=(2, 3))))) * 2.0, torch.ones(2, 3)
    ) == [
        "neg",
        "mul",
    ]
