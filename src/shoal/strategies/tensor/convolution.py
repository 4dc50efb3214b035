"""Convolutions that the workers of a group compute together, by channels, and the layers between them.

y[o] = Σᵢ w[o, i] ∗ x[i] + b[o] over input channels i: a linear layer whose numbers are pictures, with the same cuts::

    column: by output channels              row: by input channels

        x₀ x₁ x₂ x₃   (all, on every worker)    x₀ x₁ │ x₂ x₃
        ──────┬──────                           ──┬── │ ──┬──
        y₀ y₁ │ y₂ y₃                           Σ₀    +   Σ₁   →  y₀ y₁ y₂ y₃  (all, on every worker)

Between the two may stand what works on each element or each channel alone: activations, pooling, batch norm. Layers
with a state of their own are divided: each worker applies them to its own features. Statistics are per channel (batch
norm) or per group of channels (group norm): a worker that has all of a channel or a group computes what one machine
computes, without communication.
"""

from typing import Any, ClassVar, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.strategies.tensor.linear import check_divided_input
from shoal.strategies.tensor.parts import (
    Cut,
    check_divides,
    gather_from,
    my_part,
    part_of,
    spread_to,
    sum_over,
)

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


PER_CHANNEL = {name: Cut(0) for name in ("weight", "bias", "running_mean", "running_var")}


def divided_norm(whole: Any, group: Group, name: str) -> nn.Module:
    """The norm with this worker's channels, changed in place."""
    if isinstance(whole, nn.GroupNorm):
        check_divides(name, whole.num_groups, "groups of channels", group)
        whole.num_groups //= group.size
        whole.num_channels //= group.size
    else:
        check_divides(name, whole.num_features, "channels", group)
        whole.num_features //= group.size
    for key, cut in PER_CHANNEL.items():
        tensor = getattr(whole, key, None)
        if isinstance(tensor, nn.Parameter):
            setattr(whole, key, part_of(tensor, cut, group))
        elif tensor is not None:
            setattr(whole, key, cut.part(tensor, group))
    whole.cuts = PER_CHANNEL  # pyright: ignore[reportArgumentType]
    return whole


@final
class DividedDropout(nn.Module):
    """Dropout of this worker's features, with its part of the mask that one machine draws.

    All workers of the group have the same random state: each draws the whole mask, so that the states stay equal and
    different features have different masks. Costs a mask of the whole width.
    """

    cuts: ClassVar[dict[str, Cut]] = {}

    def __init__(self, whole: nn.Dropout | nn.Dropout2d, group: Group, name: str) -> None:
        super().__init__()
        del name  # any width that a column cut has divided can be divided here, too
        self.p = whole.p
        self._by_channel = isinstance(whole, nn.Dropout2d)
        self._group = group

    def forward(self, x: Tensor) -> Tensor:
        """x with some elements (for Dropout2d: channels) zero, and the others scaled up."""
        if not self.training:
            return x
        dim = CHANNELS if self._by_channel or x.dim() == 4 else -1
        shape = list(x.shape)
        shape[dim] *= self._group.size
        ones = torch.ones(shape, dtype=x.dtype, device=x.device)
        mask = F.dropout2d(ones, self.p) if self._by_channel else F.dropout(ones, self.p)
        return x * my_part(mask, self._group, dim)
