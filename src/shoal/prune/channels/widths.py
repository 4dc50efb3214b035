"""Widths: the attributes and shapes of layers that have shrunk, as data, and the network rebuilt from them."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from shoal.errors import CheckpointError
from shoal.models.transformer import Attention

Widths = dict[str, dict[str, int]]
"""By the name of a layer, the sizes that differ from the model's: {"conv1": {"out_channels": 3}}."""

Shapes = Callable[[Any], dict[str, tuple[int, ...]]]


def _linear(layer: nn.Linear) -> dict[str, tuple[int, ...]]:
    return {"weight": (layer.out_features, layer.in_features), "bias": (layer.out_features,)}


def _convolution(layer: nn.Conv2d) -> dict[str, tuple[int, ...]]:
    inputs = layer.in_channels // layer.groups
    return {"weight": (layer.out_channels, inputs, *layer.kernel_size), "bias": (layer.out_channels,)}


def _batch_norm(layer: nn.BatchNorm2d) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (layer.num_features,))


def _group_norm(layer: nn.GroupNorm) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("weight", "bias"), (layer.num_channels,))


def _none(layer: nn.Module) -> dict[str, tuple[int, ...]]:
    return {}


SHAPES: dict[type[Any], tuple[tuple[str, ...], Shapes]] = {
    nn.Linear: (("in_features", "out_features"), _linear),
    nn.Conv2d: (("in_channels", "out_channels", "groups"), _convolution),
    nn.BatchNorm1d: (("num_features",), _batch_norm),
    nn.BatchNorm2d: (("num_features",), _batch_norm),
    nn.GroupNorm: (("num_channels", "num_groups"), _group_norm),
    Attention: (("heads",), _none),
}
"""By type, the attributes that are sizes, and the shapes of the layer's tensors that follow from them."""


def resize(model: nn.Module, widths: Mapping[str, Mapping[str, int]]) -> None:
    """Give layers other widths, in place. Their new tensors have no values yet: load weights next.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    >>> resize(model, {"0": {"out_features": 3}, "1": {"in_features": 3}})
    >>> model
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    layers = dict(model.named_modules())
    for name, sizes in widths.items():
        layer = layers.get(name)
        attributes, shapes = SHAPES.get(type(layer), ((), _none))
        for attribute, size in sizes.items():
            if attribute not in attributes or type(size) is not int or size < 1:
                raise CheckpointError(
                    f"the widths of the network do not fit this model: {name} cannot have {attribute} = {size!r}"
                )
            setattr(layer, attribute, size)
        if layer is not None:
            _allocate(layer, shapes(layer))


def _allocate(layer: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        old = getattr(layer, name)
        if old is None:  # without bias, or without running statistics
            continue
        new = torch.empty(shape, dtype=old.dtype, device=old.device)
        setattr(layer, name, nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new)
