"""The automatic plan: which layers to cut in models whose data flow is known.

Known are `nn.Sequential` and the layers of torch's transformers, wherever they are in a model, and shoal's own modules.
Two layers with only functions of single elements (after a convolution: of single channels) between them become a pair
of column and row, which costs one all-reduce. A layer without a partner is divided and gathered if it is large; a small
one costs less to compute on every worker than to send. What does not divide evenly stays whole, except attention: its
heads must divide evenly.
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.models import resnet18, transformer
from shoal.strategies.tensor.parts import check_divides

SMALL = 2**16
"""Weights below which a layer without a partner stays whole."""

ELEMENTWISE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid,
    nn.Hardswish, nn.Softplus, nn.Identity, nn.Dropout,
)  # fmt: skip
PER_CHANNEL = (
    nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.BatchNorm2d, nn.GroupNorm, nn.Dropout2d,
)  # fmt: skip
DIVIDED = (nn.BatchNorm2d, nn.GroupNorm, nn.Dropout, nn.Dropout2d)
"""Layers between that need to know their part."""


def automatic_plan(model: nn.Module, group: Group) -> dict[str, str]:
    """The plan for a model; an error if nothing in it can be divided.

    >>> from shoal.comm.threads.group import ThreadGroup
    >>> from shoal.models.mlp import mlp
    >>> automatic_plan(mlp(), ThreadGroup.world(2)[0])
    {'fc1': 'column', 'fc2': 'row'}
    """
    plan: dict[str, str] = {}
    for path, module in model.named_modules():
        rule = RULES.get(type(module))
        for name, cut in rule(module, group, path) if rule else ():
            plan[f"{path}.{name}" if path else name] = cut
    if not plan:
        why = (
            f"no two of its layers have a multiple of {group.size} features, and only elementwise functions, between"
            if type(model) in RULES
            else "it knows the order of layers only in nn.Sequential, torch's transformer layers and shoal's models"
        )
        raise ConfigError(
            f"the automatic plan finds no layer of {type(model).__name__} that {group.size} workers can divide: {why}",
            ("Use another number of workers, or write" if type(model) in RULES else "Write")
            + ' a plan (--tensor.plan plan.toml), with lines such as fc1 = "column" and fc2 = "row".',
        )
    return plan


Cuts = Iterator[tuple[str, str]]


def _sequential(module: nn.Sequential, group: Group, path: str) -> Cuts:
    """Pairs of layers with only elementwise functions between them; then the layers that are left."""
    children = list(module.named_children())
    position = 0
    while position < len(children):
        name, layer = children[position]
        end = _partner(children, position, group.size)
        if end is not None:
            yield name, "column"
            yield from (
                (key, "divided") for key, each in children[position + 1 : end] if isinstance(each, DIVIDED)
            )
            yield children[end][0], "row"
            position = end
        else:
            yield from _alone(name, layer, group)
        position += 1


def _partner(children: list[tuple[str, nn.Module]], start: int, workers: int) -> int | None:
    """The position of the row layer that fits a column layer at `start`; None if there is none."""
    _, first = children[start]
    outputs = _outputs(first)
    if not outputs or outputs % workers or getattr(first, "groups", 1) != 1:
        return None
    between = ELEMENTWISE + (PER_CHANNEL if type(first) is nn.Conv2d else ())
    for position in range(start + 1, len(children)):
        _, layer = children[position]
        if type(layer) is nn.Linear:
            return position if layer.in_features % outputs == 0 else None
        if type(layer) is nn.Conv2d:
            return position if layer.in_channels == outputs and layer.groups == 1 else None
        if type(layer) is nn.GroupNorm and layer.num_groups % workers:
            return None
        is_flat = type(first) is nn.Conv2d and type(layer) is nn.Flatten
        if type(layer) not in between and not (is_flat and (layer.start_dim, layer.end_dim) == (1, -1)):
            return None
    return None


def _outputs(layer: nn.Module) -> int:
    """The features that a layer can divide; 0 for a layer that cannot be cut by column."""
    if type(layer) is nn.Linear:
        return layer.out_features
    return layer.out_channels if type(layer) is nn.Conv2d else 0


def _alone(name: str, layer: nn.Module, group: Group) -> Cuts:
    """A layer without a partner."""
    outputs = layer.embedding_dim if type(layer) is nn.Embedding else _outputs(layer)
    is_large = sum(param.numel() for param in layer.parameters()) >= SMALL
    if outputs and outputs % group.size == 0 and is_large and getattr(layer, "groups", 1) == 1:
        yield name, "gather"


def _transformer(module: transformer.Transformer, group: Group, path: str) -> Cuts:
    # The positions are few: they stay whole.
    if module.tokens.weight.numel() >= SMALL and module.tokens.num_embeddings % group.size == 0:
        yield "tokens", "row"
    yield from _alone("head", module.head, group)


def _transformer_block(module: transformer.Block, group: Group, path: str) -> Cuts:
    check_divides(f"{path}.attention", module.attention.heads, "heads", group)
    yield "attention", "heads"
    if module.fc1.out_features % group.size == 0:
        yield "fc1", "column"
        yield "fc2", "row"


def _torch_layer(module: Any, group: Group, path: str) -> Cuts:
    """A layer of `nn.TransformerEncoder` or `nn.TransformerDecoder`."""
    for name in ("self_attn", "multihead_attn"):
        if hasattr(module, name):
            check_divides(f"{path}.{name}", getattr(module, name).num_heads, "heads", group)
            yield name, "heads"
    if module.linear1.out_features % group.size == 0:
        yield "linear1", "column"
        yield "dropout", "divided"
        yield "linear2", "row"


def _resnet18(module: resnet18.Resnet18, group: Group, path: str) -> Cuts:
    yield from _alone("conv1", module.conv1, group)
    yield from _alone("fc", module.fc, group)


def _resnet18_block(module: resnet18.Block, group: Group, path: str) -> Cuts:
    norm = module.norm1
    groups = norm.num_groups if isinstance(norm, nn.GroupNorm) else module.conv1.out_channels
    if groups % group.size == 0:
        yield "conv1", "column"
        yield "norm1", "divided"
        yield "conv2", "row"


def _shortcut(module: resnet18.Shortcut, group: Group, path: str) -> Cuts:
    yield from _alone("conv", module.conv, group)


RULES: dict[type[nn.Module], Callable[[Any, Group, str], Cuts]] = {
    nn.Sequential: _sequential,
    nn.TransformerEncoderLayer: _torch_layer,
    nn.TransformerDecoderLayer: _torch_layer,
    transformer.Transformer: _transformer,
    transformer.Block: _transformer_block,
    resnet18.Resnet18: _resnet18,
    resnet18.Block: _resnet18_block,
    resnet18.Shortcut: _shortcut,
}
"""The cuts of a module's children, by its type."""
