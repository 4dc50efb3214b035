"""Convolutions that the workers of a group compute together, by channels.

y[o] = Σᵢ w[o, i] ∗ x[i] + b[o] over input channels i: a linear layer whose numbers are pictures, with the same cuts::

    column: by output channels              row: by input channels

        x₀ x₁ x₂ x₃   (all, on every worker)    x₀ x₁ │ x₂ x₃
        ──────┬──────                           ──┬── │ ──┬──
        y₀ y₁ │ y₂ y₃                           Σ₀    +   Σ₁   →  y₀ y₁ y₂ y₃  (all, on every worker)

Between the two may stand what works on each element or each channel alone: activations, pooling, batch norm.
"""

from typing import ClassVar, cast, final

from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.strategies.tensor.collectives import gather_from, spread_to, sum_over
from shoal.strategies.tensor.linear import check_divided_input
from shoal.strategies.tensor.parts import Cut, check_divides, part_of

CHANNELS = -3
"""The dimension of channels in a picture or a batch of pictures."""


def _sizes(whole: nn.Conv2d, name: str) -> dict[str, object]:
    """The settings of a convolution that both cuts keep."""
    if whole.groups != 1:
        raise ConfigError(
            f"cannot divide {name}: a convolution in {whole.groups} groups does not mix all channels",
            f"Leave {name} out of the plan.",
        )
    names = ("kernel_size", "stride", "padding", "dilation", "padding_mode")
    return {key: getattr(whole, key) for key in names}


@final
class ColumnConv2d(nn.Conv2d):
    """This worker's output channels of a convolution.

    Weight and bias are divided. Sends nothing forward and the gradient of the input backward. With `gathers`, the
    output is gathered: that sends this worker's channels forward and nothing more backward.
    """

    cuts: ClassVar = {"weight": Cut(0), "bias": Cut(0)}

    def __init__(self, whole: nn.Conv2d, group: Group, name: str, gathers: bool = False) -> None:
        check_divides(name, whole.out_channels, "output channels", group)
        part = whole.out_channels // group.size
        super().__init__(whole.in_channels, part, **_sizes(whole, name), device="meta")  # pyright: ignore[reportArgumentType]
        self.weight = cast(nn.Parameter, part_of(whole.weight, self.cuts["weight"], group))
        self.bias = part_of(whole.bias, self.cuts["bias"], group)
        self.gathers = gathers
        self._group = group

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name in nn.Conv2d)
        """[N, channels, …] → [N, output channels / workers, …], or all of them if they are gathered."""
        part = super().forward(spread_to(input, self._group) if input.requires_grad else input)
        return gather_from(part, self._group, CHANNELS) if self.gathers else part


@final
class RowConv2d(nn.Conv2d):
    """The sum over the workers of a convolution's input channels.

    The weight is divided; every worker has the bias and adds it after the sum. Sends the output forward and nothing
    backward.
    """

    cuts: ClassVar = {"weight": Cut(1)}

    def __init__(self, whole: nn.Conv2d, group: Group, name: str) -> None:
        check_divides(name, whole.in_channels, "input channels", group)
        part = whole.in_channels // group.size
        super().__init__(part, whole.out_channels, **_sizes(whole, name), device="meta")  # pyright: ignore[reportArgumentType]
        self.weight = cast(nn.Parameter, part_of(whole.weight, self.cuts["weight"], group))
        self.bias = whole.bias
        self._group, self._name = group, name

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name in nn.Conv2d)
        """[N, channels / workers, …] → [N, output channels, …]."""
        channels = self.in_channels * self._group.size
        check_divided_input(self._name, input.shape[CHANNELS], channels, self._group)
        y = sum_over(self._conv_forward(input, self.weight, None).contiguous(), self._group)
        return y if self.bias is None else y + self.bias[:, None, None]
