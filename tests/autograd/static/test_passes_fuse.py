import torch

from shoal.autograd import derived, ops
from shoal.autograd.static.graph import trace
from shoal.autograd.static.passes import fuse


def names(function, *examples):
    return [operation.name for operation in fuse(trace(function, examples)).operations]


def test_bias_joins_the_product_and_the_convolution():
    assert names(derived.linear, torch.ones(4, 3), torch.ones(2, 3), torch.ones(2)) == ["matmul_add"]
    image, kernel, bias = torch.ones(1, 2, 5, 5), torch.ones(3, 2, 3, 3), torch.ones(3)
    assert names(derived.conv2d, image, kernel, bias) == ["reshape", "conv2d_add"]


def test_a_difference_is_one_pass():
    assert names(lambda a, b: a - b, torch.ones(2), torch.ones(2)) == ["subtract"]


def test_a_value_that_something_else_reads_is_not_swallowed():
    def function(a, b):
        product = a @ b
        return product + torch.ones(3), product

    assert names(function, torch.ones(2, 2), torch.ones(2, 3)) == ["matmul", "add"]


def test_a_column_is_no_bias():
    assert names(lambda a, b: ops.add(a @ b, torch.ones(2, 1)), torch.ones(2, 2), torch.ones(2, 3)) == [
        "matmul",
        "add",
    ]
