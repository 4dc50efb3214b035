"""Cuts by name: what `column`, `row`, `gather`, `divided` and `heads` do to each kind of layer."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import nn

from shoal.comm.group import Group
from shoal.errors import ConfigError, unknown
from shoal.models.transformer import Attention
from shoal.strategies.tensor import attention
from shoal.strategies.tensor.between import (
    PER_CHANNEL,
    DividedDropout,
    divided_batch_norm,
    divided_group_norm,
)
from shoal.strategies.tensor.convolution import ColumnConv2d, RowConv2d
from shoal.strategies.tensor.embedding import GatheredEmbedding, RowEmbedding
from shoal.strategies.tensor.linear import ColumnLinear, RowLinear
from shoal.strategies.tensor.parts import Cut


class DividedLayer(NamedTuple):
    """The layer that takes a whole layer's place on one worker, and how its tensors are divided, by their names."""

    module: nn.Module
    cuts: Mapping[str, Cut]


def _column_linear(whole: nn.Linear, group: Group, name: str) -> DividedLayer:
    layer = ColumnLinear(whole, group, name)
    return DividedLayer(layer, layer.cuts)


def _gathered_linear(whole: nn.Linear, group: Group, name: str) -> DividedLayer:
    layer = ColumnLinear(whole, group, name, gathers=True)
    return DividedLayer(layer, layer.cuts)


Divide = Callable[[Any, Group, str], DividedLayer]
"""(whole layer, group, its name in the model)."""

CUTS: dict[str, dict[type[nn.Module], Divide]] = {
    "column": {
        nn.Linear: _column_linear,
        nn.Conv2d: lambda whole, group, name: DividedLayer(
            ColumnConv2d(whole, group, name), ColumnConv2d.cuts
        ),
    },
    "row": {
        nn.Linear: lambda whole, group, name: DividedLayer(RowLinear(whole, group, name), RowLinear.cuts),
        nn.Conv2d: lambda whole, group, name: DividedLayer(RowConv2d(whole, group, name), RowConv2d.cuts),
        nn.Embedding: lambda whole, group, name: DividedLayer(
            RowEmbedding(whole, group, name), RowEmbedding.cuts
        ),
    },
    "gather": {
        nn.Linear: _gathered_linear,
        nn.Conv2d: lambda whole, group, name: DividedLayer(
            ColumnConv2d(whole, group, name, gathers=True), ColumnConv2d.cuts
        ),
        nn.Embedding: lambda whole, group, name: DividedLayer(
            GatheredEmbedding(whole, group, name), GatheredEmbedding.cuts
        ),
    },
    "divided": {
        nn.BatchNorm2d: lambda whole, group, name: DividedLayer(
            divided_batch_norm(whole, group, name), PER_CHANNEL
        ),
        nn.GroupNorm: lambda whole, group, name: DividedLayer(
            divided_group_norm(whole, group, name), PER_CHANNEL
        ),
        nn.Dropout: lambda whole, group, name: DividedLayer(DividedDropout(whole, group, name), {}),
        nn.Dropout2d: lambda whole, group, name: DividedLayer(DividedDropout(whole, group, name), {}),
    },
    "heads": {
        Attention: lambda whole, group, name: DividedLayer(
            attention.divided_attention(whole, group, name), attention.CUTS
        ),
    },
}
"""The cuts, and the layers that each can divide."""


def check_cut(cut: str, module: nn.Module, name: str) -> None:
    """Refuse a cut that does not exist, or that this kind of layer does not support."""
    if cut not in CUTS:
        raise ConfigError(
            f"the plan's cut of {name}: {unknown('cut', cut, [*CUTS, 'worker N'])}",
            "Layers that the plan leaves out stay whole on every worker.",
        )
    if type(module) not in CUTS[cut]:
        kinds = ", ".join(kind.__name__ for kind in CUTS[cut])
        fitting = [other for other, table in CUTS.items() if type(module) in table]
        raise ConfigError(
            f'the plan cuts {name}, a {type(module).__name__}, by "{cut}", which divides {kinds}',
            f"A {type(module).__name__} can be cut by {' or '.join(fitting)}."
            if fitting
            else f"Leave {name} out of the plan.",
        )


def divided(cut: str, module: nn.Module, group: Group, name: str) -> DividedLayer:
    """This worker's part of a layer."""
    layer = CUTS[cut][type(module)](module, group, name)
    layer.module.train(module.training)
    return layer
