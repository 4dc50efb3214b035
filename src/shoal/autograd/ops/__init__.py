"""The primitives: each operation with its formula, and its backward directly under its forward.

They take variables (and record), or tensors (and only compute).
"""

from shoal.autograd.ops.elementwise import (
    add,
    convert,
    detach,
    equal,
    erf,
    exp,
    greater,
    log,
    masked,
    mul,
    neg,
    pow,  # noqa: A004 (the operation's name in the field)
    reciprocal,
    relu,
    sigmoid,
    sqrt,
    tanh,
    where,
)
from shoal.autograd.ops.layers import conv2d, conv2d_input, conv2d_weight, matmul, max, max_pool2d  # noqa: A004
from shoal.autograd.ops.shape import (
    concatenate,
    expand,
    fit,
    index_scatter,
    index_select,
    narrow,
    one_hot,
    permute,
    put_along,
    reshape,
    sum,  # noqa: A004
    surround,
    take_along,
)

__all__ = [
    "add", "concatenate", "conv2d", "conv2d_input", "conv2d_weight", "convert", "detach", "equal", "erf", "exp",
    "expand", "fit", "greater", "index_scatter", "index_select", "log", "masked", "matmul", "max", "max_pool2d", "mul",
    "narrow", "neg", "one_hot", "permute", "pow", "put_along", "reciprocal", "relu", "reshape", "sigmoid", "sqrt",
    "sum", "surround", "take_along", "tanh", "where",
]  # fmt: skip
