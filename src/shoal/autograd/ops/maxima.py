"""Maxima: over whole axes, or in windows of an image."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shoal.autograd.ops.elementwise import convert, equal, mul, reciprocal
from shoal.autograd.ops.products import Pair
from shoal.autograd.ops.shape import expand, put_along, reshape, sum  # noqa: A004
from shoal.autograd.tape import primitive


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
