"""The operations that layers are built on: matrix product, convolution, maxima over axes or in windows of an image.

A product is linear in each of two inputs, and the gradient of each is again a product of the same family: it can be
differentiated to any order with the rules in this file.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal.autograd.ops.elementwise import convert, equal, mul, reciprocal
from shoal.autograd.ops.shape import expand, fit, put_along, reshape, sum  # noqa: A004
from shoal.autograd.tape import primitive


@primitive("{} @ {}")
def matmul(a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """C = A B, each side optionally transposed first (two dimensions or more; leading ones broadcast).

    ∂A = ∂C Bᵀ,  ∂B = Aᵀ ∂C,  and of a transposed side the transpose: ∂(Bᵀ) = (Aᵀ ∂C)ᵀ = ∂Cᵀ A.

    The transposes are options, not operations, so that the gradient of a weight stored as [out, in] is computed as
    ∂Cᵀ A, which is contiguous like the weight; a transposed one would slow down every optimizer step.
    """
    if transpose_b and not transpose_a and a.ndim == b.ndim == 2:
        # The same product, computed as Cᵀ = B Aᵀ. For A Bᵀ, oneDNN on ARM rearranges B in every call, which can take
        # longer than the product.
        c = a.new_empty(a.shape[0], b.shape[0])
        torch.mm(b, a.mT, out=c.mT)
        return c
    return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


def _matmul_backward_a(
    g: Any, c: Any, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False
) -> Any:
    if transpose_a:
        return fit(matmul(b, g, transpose_a=transpose_b, transpose_b=True), a)
    return fit(matmul(g, b, transpose_b=not transpose_b), a)


def _matmul_backward_b(
    g: Any, c: Any, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False
) -> Any:
    if transpose_b:
        return fit(matmul(g, a, transpose_a=True, transpose_b=transpose_a), b)
    return fit(matmul(a, g, transpose_a=not transpose_a), b)


matmul.backward = (_matmul_backward_a, _matmul_backward_b)

Pair = tuple[int, int]


@primitive()
def conv2d(x: Tensor, w: Tensor, *, stride: Pair, padding: Pair) -> Tensor:
    """y = x ⋆ w: x is [samples, in, height, width], w [out, in, height, width].

    ∂x = `conv2d_input`(∂y, w),  ∂w = `conv2d_weight`(x, ∂y).
    """
    return F.conv2d(x, w, None, stride, padding)


@primitive()
def conv2d_input(g: Tensor, w: Tensor, *, size: Pair, stride: Pair, padding: Pair) -> Tensor:
    """The gradient of ⟨x ⋆ w, g⟩ by x: a transposed convolution.

    Linear in both:  ∂g = ∂x ⋆ w,  ∂w = `conv2d_weight`(∂x, g). `size` is x's height and width, which g's shape does not
    determine if the stride is above 1.
    """
    rest = tuple(
        size[i] - ((g.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + w.shape[2 + i]) for i in range(2)
    )
    return F.conv_transpose2d(g, w, None, stride, padding, rest)


@primitive()
def conv2d_weight(x: Tensor, g: Tensor, *, size: Pair, stride: Pair, padding: Pair) -> Tensor:
    """The gradient of ⟨x ⋆ w, g⟩ by w: x correlated with g, samples in the role of channels.

    Linear in both:  ∂x = `conv2d_input`(g, ∂w),  ∂g = x ⋆ ∂w. `size` is w's height and width.
    """
    if x.shape[0] == 0:  # without samples torch's kernel would lose g's channels
        return x.new_zeros(g.shape[1], x.shape[1], *size)
    # The kernel of torch's own backward. A convolution of x with g as the window gives the same gradient, but on x86 it
    # pads g's channels to a multiple of 16, and takes several times as long where there are many.
    shape_of = x.new_empty(g.shape[1], x.shape[1], *size)
    kernel = torch.ops.aten.convolution_backward.default
    options = (None, stride, padding, (1, 1), False, (0, 0), 1, (False, True, False))
    return kernel(g, x, shape_of, *options)[1]


def _size(image: Any) -> Pair:
    return tuple(image.shape[2:])


conv2d.backward = (
    lambda g, y, x, w, stride, padding: conv2d_input(g, w, size=_size(x), stride=stride, padding=padding),
    lambda g, y, x, w, stride, padding: conv2d_weight(x, g, size=_size(w), stride=stride, padding=padding),
)
conv2d_input.backward = (
    lambda h, x, g, w, size, stride, padding: conv2d(h, w, stride=stride, padding=padding),
    lambda h, x, g, w, size, stride, padding: conv2d_weight(
        h, g, size=_size(w), stride=stride, padding=padding
    ),
)
conv2d_weight.backward = (
    lambda h, w, x, g, size, stride, padding: conv2d_input(
        g, h, size=_size(x), stride=stride, padding=padding
    ),
    lambda h, w, x, g, size, stride, padding: conv2d(x, h, stride=stride, padding=padding),
)


@primitive()
def max(a: Tensor, *, dims: tuple[int, ...]) -> Tensor:  # noqa: A001 (the operation's name in the field)
    """c = max a over dims, kept as axes of length 1:  ∂a = ∂c at the maximum, divided evenly among ties."""
    return torch.amax(a, dims, keepdim=True)


def _max_backward(g: Any, c: Any, a: Any, dims: tuple[int, ...]) -> Any:
    winners = convert(equal(a, c), dtype=a.dtype)
    share = mul(g, reciprocal(sum(winners, dims=dims, keep=True)))
    return mul(winners, expand(share, shape=tuple(a.shape)))


max.backward = (_max_backward,)


@primitive()
def max_pool2d(x: Tensor, *, kernel: Pair, stride: Pair, padding: Pair) -> tuple[Tensor, Tensor]:
    """y = the maximum of each window, and its index:  ∂x = ∂y, added at the index."""
    y, index = F.max_pool2d(x, kernel, stride, padding, return_indices=True)
    return y, index


def _max_pool2d_backward(g: Any, outputs: Any, x: Any, kernel: Pair, stride: Pair, padding: Pair) -> Any:
    samples, channels, height, width = x.shape
    flat = (samples, channels, math.prod(g.shape[2:]))
    image = put_along(reshape(g, shape=flat), reshape(outputs[1], shape=flat), dim=2, size=height * width)
    return reshape(image, shape=(samples, channels, height, width))


max_pool2d.backward = (_max_pool2d_backward,)
