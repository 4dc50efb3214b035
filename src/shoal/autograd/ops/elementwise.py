"""Operations on each element, with NumPy's broadcasting: an axis of length 1, or a missing one, is repeated.

In every formula `c` is the output and ∂c its gradient. The gradient of an input that was broadcast is summed over the
repetitions (`fit`).
"""

from typing import Any

import torch
from torch import Tensor

from shoal.autograd.ops.shape import fit
from shoal.autograd.tape import primitive


@primitive("{} + {}")
def add(a: Tensor, b: Tensor) -> Tensor:
    """c = a + b:  ∂a = ∂c,  ∂b = ∂c."""
    return a + b


add.backward = (
    lambda g, c, a, b: fit(g, a),
    lambda g, c, a, b: fit(g, b),
)


@primitive("{} * {}")
def mul(a: Tensor, b: Tensor) -> Tensor:
    """c = a · b:  ∂a = ∂c · b,  ∂b = ∂c · a."""
    return a * b


mul.backward = (
    lambda g, c, a, b: fit(mul(g, b), a),
    lambda g, c, a, b: fit(mul(g, a), b),
)


@primitive("-{}")
def neg(a: Tensor) -> Tensor:
    """c = −a:  ∂a = −∂c."""
    return torch.neg(a)


neg.backward = (lambda g, c, a: neg(g),)


@primitive("1 / {}")
def reciprocal(a: Tensor) -> Tensor:
    """c = 1 / a:  ∂a = −∂c · c²."""
    return torch.reciprocal(a)


reciprocal.backward = (lambda g, c, a: neg(mul(g, mul(c, c))),)


@primitive()
def pow(a: Tensor, *, exponent: float) -> Tensor:  # noqa: A001 (the operation's name in the field)
    """c = aⁿ for a number n:  ∂a = ∂c · n · aⁿ⁻¹."""
    return torch.pow(a, exponent)


def _pow_backward(g: Any, c: Any, a: Any, exponent: float) -> Any:
    if exponent == 0:
        return mul(g, 0.0)  # a⁰ is constant, also at a = 0, where n · aⁿ⁻¹ would be 0 · ∞
    return mul(g, mul(pow(a, exponent=exponent - 1), float(exponent)))


pow.backward = (_pow_backward,)


@primitive()
def exp(a: Tensor) -> Tensor:
    """c = eᵃ:  ∂a = ∂c · c."""
    return torch.exp(a)


exp.backward = (lambda g, c, a: mul(g, c),)


@primitive()
def log(a: Tensor) -> Tensor:
    """c = ln a:  ∂a = ∂c / a."""
    return torch.log(a)


log.backward = (lambda g, c, a: mul(g, reciprocal(a)),)


@primitive()
def sqrt(a: Tensor) -> Tensor:
    """c = √a:  ∂a = ∂c / 2c."""
    return torch.sqrt(a)


sqrt.backward = (lambda g, c, a: mul(g, mul(reciprocal(c), 0.5)),)


@primitive()
def tanh(a: Tensor) -> Tensor:
    """c = tanh a:  ∂a = ∂c · (1 − c²)."""
    return torch.tanh(a)


tanh.backward = (lambda g, c, a: mul(g, add(neg(mul(c, c)), 1.0)),)


@primitive()
def sigmoid(a: Tensor) -> Tensor:
    """c = 1 / (1 + e⁻ᵃ):  ∂a = ∂c · c · (1 − c)."""
    return torch.sigmoid(a)


sigmoid.backward = (lambda g, c, a: mul(g, mul(c, add(neg(c), 1.0))),)


@primitive()
def erf(a: Tensor) -> Tensor:
    """c = 2/√π ∫₀ᵃ e^(−t²) dt:  ∂a = ∂c · 2/√π · e^(−a²)."""
    return torch.erf(a)


erf.backward = (lambda g, c, a: mul(g, mul(exp(neg(mul(a, a))), 2 / torch.pi**0.5)),)


@primitive()
def relu(a: Tensor) -> Tensor:
    """c = max(a, 0):  ∂a = ∂c where c > 0, else 0."""
    return torch.relu(a)


@primitive()
def masked(g: Tensor, c: Tensor) -> Tensor:
    """d = g where c > 0, else 0:  ∂g = ∂d where c > 0, else 0 (d is flat in c)."""
    return torch.ops.aten.threshold_backward.default(g, c, 0.0)


relu.backward = (lambda g, c, a: masked(g, c),)
masked.backward = (lambda g, d, h, c: masked(g, c), None)


@primitive()
def equal(a: Tensor, b: Tensor) -> Tensor:
    """True where a = b; no gradient flows."""
    return torch.eq(a, b)


equal.backward = (None, None)


@primitive()
def convert(a: Tensor, *, dtype: torch.dtype) -> Tensor:
    """A mask as numbers, 1 where true and 0 elsewhere; no gradient flows."""
    return a.to(dtype)


convert.backward = (None,)


@primitive()
def greater(a: Tensor, b: Tensor) -> Tensor:
    """True where a > b; no gradient flows."""
    return torch.gt(a, b)


greater.backward = (None, None)


@primitive()
def where(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """c = a where mask, else b:  ∂a = ∂c where mask, else 0;  ∂b = 0 where mask, else ∂c."""
    return torch.where(mask, a, b)


where.backward = (
    None,
    lambda g, c, mask, a, b: fit(where(mask, g, 0.0), a),
    lambda g, c, mask, a, b: fit(where(mask, 0.0, g), b),
)


@primitive()
def detach(a: Tensor) -> Tensor:
    """c = a, as a constant: no gradient flows."""
    return a.detach()


detach.backward = (None,)
