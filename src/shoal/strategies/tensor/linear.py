"""Linear layers that the workers of a group compute together.

y = x·Wᵀ + b, with W of shape [outputs, inputs] as torch has it (so a *column* of Wᵀ is a row of W)::

    column: by outputs                           row: by inputs

                    ┌────┬────┐                                   ┌─────────┐
                    │ W₀ᵀ│ W₁ᵀ│                                   │   W₀ᵀ   │
                    └────┴────┘                     ┌────┬────┐   ├─────────┤
    ┌─────────┐     ┌────┬────┐                     │ x₀ │ x₁ │   │   W₁ᵀ   │
    │    x    │  →  │ y₀ │ y₁ │                     └────┴────┘   └─────────┘
    └─────────┘     └────┴────┘                     y = x₀·W₀ᵀ + x₁·W₁ᵀ + b
    yᵣ = x·Wᵣᵀ + bᵣ      ∂x = Σᵣ ∂yᵣ·Wᵣ             ∂xᵣ = ∂y·Wᵣ

A column layer takes the whole input and leaves its output divided; a row layer takes it from there, and its sum is
whole again. Between the two may stand any function that works element by element. So a pair costs one all-reduce of
[samples, outputs] in the forward pass and one of [samples, inputs] in the backward pass; the latter only if the input
needs a gradient, and while ∂W is computed.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.strategies.tensor.parts import Cut, check_divides, gather_from, part_of


@final
class ColumnLinear(nn.Module):
    """This worker's outputs of a linear layer: yᵣ = x·Wᵣᵀ + bᵣ.

    Weight and bias are divided. Sends nothing forward and [samples, inputs] backward. With `gathers`, the parts of the
    output are gathered: that sends [samples, outputs / workers] forward and nothing more backward.
    """

    def __init__(
        self, whole: nn.Linear, group: Group, name: str, blocks: int = 1, gathers: bool = False
    ) -> None:
        super().__init__()
        check_divides(name, whole.out_features // blocks, "outputs", group)
        self.in_features, self.out_features = whole.in_features, whole.out_features
        self.cuts = {"weight": Cut(0, blocks), "bias": Cut(0, blocks)}
        self.weight = part_of(whole.weight, self.cuts["weight"], group)
        self.bias = part_of(whole.bias, self.cuts["bias"], group)
        self.gathers = gathers
        self._group = group

    def forward(self, x: Tensor) -> Tensor:
        """[…, inputs] → […, outputs / workers], or […, outputs] if they are gathered."""
        assert self.weight is not None
        part = column_product(x, self.weight, self.bias, self._group)
        return gather_from(part, self._group) if self.gathers else part

    def extra_repr(self) -> str:
        """The sizes of the whole, and the part."""
        then = ", gathered" if self.gathers else ""
        return f"{self.in_features}, {self.out_features} / {self._group.size}{then}, bias={self.bias is not None}"


@final
class RowLinear(nn.Module):
    """The sum over the workers of a linear layer's inputs: y = Σᵣ xᵣ·Wᵣᵀ + b.

    The weight is divided; every worker has the bias and adds it after the sum. Sends [samples, outputs] forward and
    nothing backward.
    """

    cuts: ClassVar = {"weight": Cut(1)}

    def __init__(self, whole: nn.Linear, group: Group, name: str) -> None:
        super().__init__()
        check_divides(name, whole.in_features, "inputs", group)
        self.in_features, self.out_features = whole.in_features, whole.out_features
        self.weight = part_of(whole.weight, self.cuts["weight"], group)
        self.bias: Tensor | None = whole.bias
        self._group, self._name = group, name

    def forward(self, x: Tensor) -> Tensor:
        """[…, inputs / workers] → […, outputs]."""
        check_divided_input(self._name, x.shape[-1], self.in_features, self._group)
        return _RowProduct.apply(x, self.weight, self.bias, self._group)  # pyright: ignore[reportReturnType]

    def extra_repr(self) -> str:
        """The sizes of the whole, and the part."""
        return f"{self.in_features} / {self._group.size}, {self.out_features}, bias={self.bias is not None}"


def check_divided_input(name: str, features: int, whole: int, group: Group) -> None:
    """Refuse a whole input where the layer before should have left it divided."""
    if features == whole and group.size > 1:
        raise ConfigError(
            f"the plan cuts {name} by row, but its input is whole: {whole} features instead of {whole // group.size}",
            f'Cut the layer before it by "column", or {name} by "gather".',
        )


def column_product(x: Tensor, weight: Tensor, bias: Tensor | None, group: Group) -> Tensor:
    """x·Wᵣᵀ + bᵣ, where every worker uses the whole x: the backward pass sums ∂x over the workers."""
    return _ColumnProduct.apply(x, weight, bias, group)  # pyright: ignore[reportReturnType]


class _ColumnProduct(torch.autograd.Function):
    """x·Wᵀ + b; the backward pass sums ∂x over the workers while it computes ∂W."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group: Group) -> Tensor:
        x, weight, bias = _in_autocast(x, weight, bias)
        ctx.group = group
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        of_x, sent = None, None
        if ctx.needs_input_grad[0]:
            of_x = gradient @ weight
            sent = ctx.group.all_reduce(of_x)
        of_weight, of_bias = _of_parameters(gradient, x, ctx.needs_input_grad)
        if sent is not None:
            sent.wait()
        return of_x, of_weight, of_bias, None


class _RowProduct(torch.autograd.Function):
    """Σᵣ xᵣ·Wᵣᵀ + b; the backward pass needs nothing from the others."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group: Group) -> Tensor:
        x, weight, bias = _in_autocast(x, weight, bias)
        ctx.save_for_backward(x, weight)
        y = F.linear(x, weight)
        group.all_reduce(y).wait()
        return y if bias is None else y.add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        of_x = gradient @ weight if ctx.needs_input_grad[0] else None
        return of_x, *_of_parameters(gradient, x, ctx.needs_input_grad), None


def _of_parameters(
    gradient: Tensor, x: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    rows = gradient.reshape(-1, gradient.shape[-1])
    of_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if wanted[1] else None
    return of_weight, rows.sum(0) if wanted[2] else None


def _in_autocast(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The operands in the precision of an autocast: inside an autograd function torch does not keep them for backward.

    Autograd itself converts the gradients back to the parameters' precision.
    """
    device = x.device.type
    if not torch.is_autocast_enabled(device):
        return x, weight, bias
    dtype = torch.get_autocast_dtype(device)
    return x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
