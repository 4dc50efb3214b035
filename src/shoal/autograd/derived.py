"""Operations composed of primitives, which need no differentiation rules of their own.

They take variables (and record), or tensors (and only compute).
"""

import math
from typing import Any

from torch import Tensor

import shoal.autograd.derived as derived
import shoal.autograd.ops as ops
from shoal.autograd.variable import Dims, Operand, Variable

Size = int | tuple[int, int]
"""Height and width of a window; one number for both."""


def _axes(a: Any, dims: Dims) -> tuple[int, ...]:
    if dims is None:
        return tuple(range(a.ndim))
    return (dims,) if isinstance(dims, int) else dims


def sub(a: Operand, b: Operand) -> Variable:
    """A − b = a + (−b)."""
    return ops.add(a, -b) if isinstance(b, int | float) else ops.add(a, ops.neg(b))


def div(a: Operand, b: Operand) -> Variable:
    """A / b = a · b⁻¹."""
    return ops.mul(a, 1 / b) if isinstance(b, int | float) else ops.mul(a, ops.reciprocal(b))


def power(a: Operand, exponent: Operand) -> Variable:
    """Aⁿ for a number n; e^(b ln a) for a variable b."""
    if isinstance(exponent, int | float):
        return ops.pow(a, exponent=exponent)
    return ops.exp(ops.mul(exponent, ops.log(a)))


def sum(a: Operand, dims: Dims = None, keep: bool = False) -> Variable:  # noqa: A001 (the operation's name)
    """Σ a over dims (None: all)."""
    return ops.sum(a, dims=_axes(a, dims), keep=keep)


def mean(a: Any, dims: Dims = None, keep: bool = False) -> Variable:
    """Σ a / n over dims."""
    axes = _axes(a, dims)
    count = math.prod(a.shape[axis] for axis in axes)
    return ops.mul(ops.sum(a, dims=axes, keep=keep), 1 / max(1, count))


def var(a: Any, dims: Dims = None, keep: bool = False) -> Variable:
    """Mean of (a − mean a)² over dims: the variance with n in the denominator."""
    centred = sub(a, mean(a, dims, keep=True))
    return mean(ops.mul(centred, centred), dims, keep)


def matmul(a: Any, b: Any) -> Variable:
    """A B; a vector is a row on the left, a column on the right."""
    if a.ndim == 1 and b.ndim == 1:
        return sum(ops.mul(a, b))
    if a.ndim == 1:
        c = ops.matmul(ops.reshape(a, shape=(1, -1)), b)
        return ops.reshape(c, shape=(*c.shape[:-2], c.shape[-1]))
    if b.ndim == 1:
        c = ops.matmul(a, ops.reshape(b, shape=(-1, 1)))
        return ops.reshape(c, shape=tuple(c.shape[:-1]))
    return ops.matmul(a, b)


def linear(x: Any, weight: Any, bias: Any = None) -> Variable:
    """X Wᵀ + b; leading axes of x are flattened to rows, so that W's gradient is one product."""
    rows = x if x.ndim == 2 else ops.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))
    y = ops.matmul(rows, weight, transpose_b=True)
    y = y if bias is None else ops.add(y, bias)
    return y if x.ndim == 2 else ops.reshape(y, shape=(*x.shape[:-1], weight.shape[0]))


def log_softmax(a: Any, dim: int = -1) -> Variable:
    """A − ln Σ eᵃ; the maximum is subtracted first: it cancels, and nothing overflows."""
    shifted = sub(a, ops.detach(ops.max(a, dims=(dim,))))
    return sub(shifted, ops.log(ops.sum(ops.exp(shifted), dims=(dim,), keep=True)))


def softmax(a: Any, dim: int = -1) -> Variable:
    """Eᵃ / Σ eᵃ, as exp(log_softmax)."""
    return ops.exp(log_softmax(a, dim))


def cross_entropy(
    logits: Any, labels: Variable | Tensor, reduction: str = "mean", smoothing: float = 0.0
) -> Variable:
    """−ln softmax(logits)[label]: the mean or the sum over samples. Labels are integers, one per row.

    With smoothing s the target is (1 − s) · label + s · (uniform over all classes).
    """
    logs = log_softmax(logits)
    total = sum(ops.take_along(logs, ops.reshape(labels, shape=(labels.shape[0], 1)), dim=1))
    if smoothing:
        total = ops.add(ops.mul(total, 1 - smoothing), ops.mul(sum(logs), smoothing / logits.shape[1]))
    return ops.mul(total, -1.0 if reduction == "sum" else -1 / logits.shape[0])


def mse(a: Any, target: Any, reduction: str = "mean") -> Variable:
    """(a − target)²: the mean over all elements, or the sum."""
    difference = sub(a, target)
    square = ops.mul(difference, difference)
    return sum(square) if reduction == "sum" else mean(square)


def layer_norm(a: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5) -> Variable:
    """(a − mean) / √(var + ε) · weight + bias, over the last axis."""
    centred = sub(a, mean(a, -1, keep=True))
    spread = ops.sqrt(ops.add(mean(ops.mul(centred, centred), -1, keep=True), epsilon))
    y = div(centred, spread)
    y = y if weight is None else ops.mul(y, weight)
    return y if bias is None else ops.add(y, bias)


def gelu(a: Any) -> Variable:
    """A · Φ(a) = a · (1 + erf(a / √2)) / 2, with Φ the normal distribution's cumulative function."""
    return ops.mul(ops.mul(a, 0.5), ops.add(ops.erf(ops.mul(a, 1 / math.sqrt(2))), 1.0))


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width, as one number for both or as they are."""
    return (size, size) if isinstance(size, int) else size


def max_pool2d(x: Any, kernel: Size, stride: Size | None = None, padding: Size = 0) -> Variable:
    """The largest element of each window of size `kernel`."""
    y, _ = ops.max_pool2d(x, kernel=pair(kernel), stride=pair(stride or kernel), padding=pair(padding))
    return y


def conv2d(x: Any, weight: Any, bias: Any = None, stride: Size = 1, padding: Size = 0) -> Variable:
    """X ⋆ w + b, with one b for each output channel."""
    y = ops.conv2d(x, weight, stride=pair(stride), padding=pair(padding))
    return y if bias is None else ops.add(y, ops.reshape(bias, shape=(1, -1, 1, 1)))


def flatten(x: Any) -> Variable:
    """[samples, …] as [samples, features]."""
    return x if x.ndim == 2 else ops.reshape(x, shape=(x.shape[0], math.prod(x.shape[1:])))


def embedding(weight: Any, index: Variable | Tensor) -> Variable:
    """The rows of weight at the indices, in the indices' shape."""
    rows = ops.index_select(weight, ops.reshape(index, shape=(-1,)), dim=0)
    return ops.reshape(rows, shape=(*index.shape, weight.shape[1]))


def transpose(a: Any) -> Variable:
    """A with its last two axes swapped."""
    return ops.permute(a, dims=(*range(a.ndim - 2), a.ndim - 1, a.ndim - 2))


def attach_operators() -> None:
    """Give `Variable` its operators; the package calls this once, when the operations exist."""
    Variable.__add__ = lambda self, other: ops.add(self, other)
    Variable.__radd__ = lambda self, other: ops.add(other, self)
    Variable.__sub__ = derived.sub
    Variable.__rsub__ = lambda self, other: derived.sub(other, self)
    Variable.__mul__ = lambda self, other: ops.mul(self, other)
    Variable.__rmul__ = lambda self, other: ops.mul(other, self)
    Variable.__truediv__ = derived.div
    Variable.__rtruediv__ = lambda self, other: derived.div(other, self)
    Variable.__matmul__ = derived.matmul
    Variable.__pow__ = derived.power
    Variable.__neg__ = lambda self: ops.neg(self)
    Variable.sum = derived.sum
    Variable.mean = derived.mean
    Variable.reshape = lambda self, *shape: ops.reshape(self, shape=shape)
    Variable.expand = lambda self, *shape: ops.expand(self, shape=shape)
    Variable.detach = lambda self: ops.detach(self)
