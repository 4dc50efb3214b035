"""Layers with a state of their own between a column and a row cut: each worker applies them to its own features.

Statistics are per channel (batch norm) or per group of channels (group norm): a worker that has all of a channel or a
group computes what one machine computes, without communication.
"""

from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.comm.group import Group
from shoal.strategies.tensor.collectives import my_part
from shoal.strategies.tensor.convolution import CHANNELS
from shoal.strategies.tensor.parts import Cut, check_divides, part_of

PER_CHANNEL = {name: Cut(0) for name in ("weight", "bias", "running_mean", "running_var")}


def divided_batch_norm(whole: nn.BatchNorm2d, group: Group, name: str) -> nn.BatchNorm2d:
    """Batch norm of this worker's channels."""
    check_divides(name, whole.num_features, "channels", group)
    part = nn.BatchNorm2d(
        whole.num_features // group.size,
        whole.eps,
        whole.momentum,
        whole.affine,
        whole.track_running_stats,
        device="meta",
    )
    _take_parameters(part, whole, group)
    for key, buffer in whole.named_buffers():
        cut = PER_CHANNEL.get(key)
        setattr(part, key, buffer if cut is None else cut.part(buffer, group))
    return part


def divided_group_norm(whole: nn.GroupNorm, group: Group, name: str) -> nn.GroupNorm:
    """Group norm of this worker's groups of channels."""
    check_divides(name, whole.num_groups, "groups of channels", group)
    part = nn.GroupNorm(
        whole.num_groups // group.size,
        whole.num_channels // group.size,
        whole.eps,
        whole.affine,
        device="meta",
    )
    _take_parameters(part, whole, group)
    return part


def _take_parameters(part: Any, whole: Any, group: Group) -> None:
    part.weight = part_of(cast(nn.Parameter | None, whole.weight), Cut(0), group)
    part.bias = part_of(cast(nn.Parameter | None, whole.bias), Cut(0), group)


@final
class DividedDropout(nn.Module):
    """Dropout of this worker's features, with its part of the mask that one machine draws.

    All workers of the group have the same random state: each draws the whole mask, so that the states stay equal and
    different features have different masks. Costs a mask of the whole width.
    """

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
