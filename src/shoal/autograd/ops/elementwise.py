"""Operations on each element, with NumPy's broadcasting: an axis of length 1, or a missing one, is repeated.

In every formula `c` is the output and ∂c its gradient. The gradient of an input that was broadcast is summed over the
repetitions (`fit`).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from shoal.autograd.ops.shape import fit
from shoal.autograd.tape import Primitive, Rule, primitive


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


def _unary(
    function: Callable[[Tensor], Tensor], formula: str, rule: Rule, symbol: str | None = None
) -> Primitive:
    """An operation on each element of one tensor, under torch's name for it."""
    operation = Primitive(function, symbol, variadic=False)
    operation.__doc__, operation.backward = formula, (rule,)
    return operation


neg = _unary(torch.neg, "c = −a:  ∂a = −∂c.", lambda g, c, a: neg(g), "-{}")
reciprocal = _unary(
    torch.reciprocal, "c = 1 / a:  ∂a = −∂c · c².", lambda g, c, a: neg(mul(g, mul(c, c))), "1 / {}"
)
exp = _unary(torch.exp, "c = eᵃ:  ∂a = ∂c · c.", lambda g, c, a: mul(g, c))
log = _unary(torch.log, "c = ln a:  ∂a = ∂c / a.", lambda g, c, a: mul(g, reciprocal(a)))
sqrt = _unary(torch.sqrt, "c = √a:  ∂a = ∂c / 2c.", lambda g, c, a: mul(g, mul(reciprocal(c), 0.5)))
tanh = _unary(
    torch.tanh, "c = tanh a:  ∂a = ∂c · (1 − c²).", lambda g, c, a: mul(g, add(neg(mul(c, c)), 1.0))
)
sigmoid = _unary(
    torch.sigmoid,
    "c = 1 / (1 + e⁻ᵃ):  ∂a = ∂c · c · (1 − c).",
    lambda g, c, a: mul(g, mul(c, add(neg(c), 1.0))),
)
erf = _unary(
    torch.erf,
    "c = 2/√π ∫₀ᵃ e^(−t²) dt:  ∂a = ∂c · 2/√π · e^(−a²).",
    lambda g, c, a: mul(g, mul(exp(neg(mul(a, a))), 2 / torch.pi**0.5)),
)
relu = _unary(torch.relu, "c = max(a, 0):  ∂a = ∂c where c > 0, else 0.", lambda g, c, a: masked(g, c))


@primitive()
def pow(a: Tensor, *, exponent: float) -> Tensor:  # noqa: A001 (the operation's name in the field)
    """c = aⁿ for a number n:  ∂a = ∂c · n · aⁿ⁻¹."""
    return torch.pow(a, exponent)


pow.backward = (
    # a⁰ is constant, also at a = 0, where n · aⁿ⁻¹ would be 0 · ∞
    lambda g, c, a, exponent: (
        mul(g, mul(pow(a, exponent=exponent - 1), float(exponent))) if exponent else mul(g, 0.0)
    ),
)


@primitive()
def masked(g: Tensor, c: Tensor) -> Tensor:
    """d = g where c > 0, else 0:  ∂g = ∂d where c > 0, else 0 (d is flat in c)."""
    return torch.ops.aten.threshold_backward.default(g, c, 0.0)


masked.backward = (lambda g, d, h, c: masked(g, c), None)


@primitive()
def equal(a: Tensor, b: Tensor) -> Tensor:
    """True where a = b; no gradient flows."""
    return torch.eq(a, b)


@primitive()
def convert(a: Tensor, *, dtype: torch.dtype) -> Tensor:
    """A mask as numbers, 1 where true and 0 elsewhere; no gradient flows."""
    return a.to(dtype)


@primitive()
def greater(a: Tensor, b: Tensor) -> Tensor:
    """True where a > b; no gradient flows."""
    return torch.gt(a, b)


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
