"""Groups of channels: what must shrink together so that a network still fits together.

::

    conv1 ──out──▶ [ channels ] ──each── norm1 ──in──▶ conv2          y = x + f(x): the channels of x and of f(x)
                                                                       are one group, and so are all their layers

A layer *produces* channels (`out`), holds parameters for *each* of them, or *reads* them (`in`). Rules, one
for each type of layer, follow channels through a model in the order of its forward pass.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from shoal.models import resnet18, transformer

Role = Literal["out", "each", "in"]


class Use(NamedTuple):
    """What a layer does with a group of channels."""

    layer: str
    role: Role
    repeat: int = 1
    """Features that belong to one channel: the pixels of a flattened channel, the width of a head."""
    blocks: int = 1
    """How often the channels follow each other in one dimension: three times where Q, K and V are one matrix."""


@dataclass(eq=False)
class ChannelGroup:
    """Channels that are removed from all their uses, or from none."""

    size: int
    kind: str = "channels"
    unit: int = 1
    """Consecutive channels that can only be removed together: those that `nn.GroupNorm` normalises together."""
    uses: list[Use] = field(default_factory=list[Use])
    fixed: str = ""
    """Why they cannot be removed; empty if they can."""
    _merged: "ChannelGroup | None" = None

    @property
    def whole(self) -> "ChannelGroup":
        """The group that this one is a part of."""
        return self if self._merged is None else self._merged.whole

    def fix(self, reason: str) -> None:
        """Keep these channels; the first reason counts."""
        self.whole.fixed = self.whole.fixed or reason

    def merge(self, other: "ChannelGroup") -> None:
        """Make two groups one: their channels are added to each other."""
        one, other = self.whole, other.whole
        if one is other:
            return
        if one.size != other.size:
            reason = "it is added to something of another width"
            one.fix(one.fixed or other.fixed or reason)
            other.fix(one.fixed)
            return
        one.unit = math.lcm(one.unit, other.unit)
        one.uses += other.uses
        one.fix(other.fixed)
        other._merged = one

    @property
    def producers(self) -> list[str]:
        """The layers whose outputs these channels are."""
        return [use.layer for use in self.uses if use.role == "out"]


class Activation(NamedTuple):
    """What flows between layers: channels, and where they are in the tensor."""

    group: ChannelGroup
    axis: Literal["second", "last"] = "second"
    """[N, channels, height, width], or [N, …, features]."""
    is_flat: bool = False
    """Whether height and width were flattened into the second axis."""


Rule = Callable[["Flow", str, Any, Activation], Activation]
"""`rule(flow, name, module, inputs)` records how a module uses its inputs, and returns its outputs."""


class Flow:
    """Follows channels through a model; collects its groups."""

    def __init__(self) -> None:
        self.groups: list[ChannelGroup] = []
        self._seen: set[nn.Module] = set()

    def through(self, name: str, module: nn.Module, inputs: Activation) -> Activation:
        """The outputs of a module."""
        if module in self._seen and any(True for _ in module.parameters()):
            for group in self.groups:
                if any(f"{use.layer}.".startswith(f"{name}.") for use in group.uses):
                    group.fix(f"{name} is used more than once")
            inputs.group.fix(f"{name} is used more than once")
            return self.unknown(f"{name} is used more than once")
        self._seen.add(module)
        rule = RULES.get(type(module))
        return self._opaque(name, module, inputs) if rule is None else rule(self, name, module, inputs)

    def _opaque(self, name: str, module: nn.Module, inputs: Activation) -> Activation:
        """A module whose forward pass is not known; sequences inside it can still shrink, except at their ends."""
        reason = (
            f"{name or 'the model'} is of type {type(module).__name__}, whose channels cannot be followed"
        )
        inputs.group.fix(reason)
        for path, inner in module.named_modules(prefix=name):
            if type(inner) is nn.Sequential and inner not in self._seen:
                self.through(path, inner, self.unknown(reason)).group.fix(reason)
        return self.unknown(reason)

    def unknown(self, reason: str) -> Activation:
        """Outputs of which nothing is known."""
        return Activation(ChannelGroup(0, fixed=reason))

    def produce(
        self, name: str, size: int, kind: str, axis: Literal["second", "last"], **how: int
    ) -> Activation:
        """New channels: the outputs of a layer."""
        group = ChannelGroup(size, kind, uses=[Use(name, "out", **how)])
        self.groups.append(group)
        return Activation(group, axis)

    def use(self, group: ChannelGroup, name: str, role: Role, features: int) -> None:
        """A layer with `features` for these channels uses them."""
        group = group.whole
        if group.size and features % group.size:
            group.fix(f"{name} has {features} features for {group.size} {group.kind}")
        group.uses.append(Use(name, role, max(1, features // group.size) if group.size else 1))

    def join(self, first: Activation, second: Activation) -> Activation:
        """The sum of two activations."""
        first.group.merge(second.group)
        return Activation(first.group.whole, first.axis, first.is_flat)


OUTPUTS = "they are the model's outputs"
"""Why the channels of the last layer cannot be removed."""


def groups_of(model: nn.Module) -> list[ChannelGroup]:
    """All groups of channels of a model, those that cannot be removed included.

    >>> from shoal.models.mlp import mlp
    >>> for group in groups_of(mlp()):
    ...     print(group.size, group.kind, group.producers, group.fixed)
    128 neurons ['fc1']
    64 neurons ['fc2']
    10 neurons ['fc3'] they are the model's outputs
    """
    flow = Flow()
    outputs = flow.through("", model, Activation(ChannelGroup(0, fixed="they are the model's inputs")))
    outputs.group.fix(OUTPUTS)
    groups = list(dict.fromkeys(group.whole for group in flow.groups))
    named = list(model.named_parameters(remove_duplicate=False))
    count = Counter(id(param) for _, param in named)
    tied = {name.rpartition(".")[0] for name, param in named if count[id(param)] > 1}
    for group in groups:
        for use in group.uses:
            if use.layer in tied:
                group.fix(f"{use.layer} shares its parameters with another layer")
        for use in group.uses:
            # The parameters from which such a weight is computed have shapes of their own.
            if has_derived_weight(model.get_submodule(use.layer)):
                group.fix(f"{use.layer} computes its weight from other parameters")
    return groups


def has_derived_weight(layer: nn.Module) -> bool:
    """Whether a layer's weight is computed before each use: `torch.nn.utils.weight_norm`, `spectral_norm`, `prune`.

    >>> has_derived_weight(nn.Linear(2, 2)), has_derived_weight(nn.utils.spectral_norm(nn.Linear(2, 2)))
    (False, True)
    """
    weight = getattr(layer, "weight", None)
    return isinstance(weight, Tensor) and not isinstance(weight, nn.Parameter)


def _sequential(flow: Flow, name: str, module: nn.Sequential, x: Activation) -> Activation:
    # `named_children` would leave out a layer that is used a second time.
    for key, child in zip(module._modules, module, strict=True):  # pyright: ignore[reportPrivateUsage]
        x = flow.through(f"{name}.{key}" if name else key, child, x)
    return x


def _linear(flow: Flow, name: str, module: nn.Linear, x: Activation) -> Activation:
    if x.axis == "second" and not x.is_flat:
        x.group.fix(f"{name} reads the last axis of a tensor with its channels in the second")
    if x.axis == "last" and module.in_features != x.group.whole.size:
        x.group.fix(f"{name} reads them together with other features")
    flow.use(x.group, name, "in", module.in_features)
    return flow.produce(name, module.out_features, "neurons", "last")


def _convolution(flow: Flow, name: str, module: nn.Conv2d, x: Activation) -> Activation:
    if x.axis == "last" or x.is_flat:
        x.group.fix(f"{name} reads other axes than the one with their features")
    if module.groups == module.in_channels == module.out_channels:  # depthwise: each channel by itself
        flow.use(x.group, name, "each", module.out_channels)
        return x
    flow.use(x.group, name, "in", module.in_channels)
    y = flow.produce(name, module.out_channels, "channels", "second")
    if module.groups > 1:
        reason = f"{name} divides them into {module.groups} groups"
        x.group.fix(reason)
        y.group.fix(reason)
    return y


def _batch_norm(flow: Flow, name: str, module: nn.BatchNorm1d | nn.BatchNorm2d, x: Activation) -> Activation:
    flow.use(x.group, name, "each", module.num_features)
    return x


def _group_norm(flow: Flow, name: str, module: nn.GroupNorm, x: Activation) -> Activation:
    group = x.group.whole
    if x.is_flat or module.num_channels != group.size:
        group.fix(f"{name} normalises over several of them")
    group.unit = math.lcm(group.unit, module.num_channels // module.num_groups)
    flow.use(group, name, "each", module.num_channels)
    return x


def _layer_norm(flow: Flow, name: str, module: nn.LayerNorm, x: Activation) -> Activation:
    x.group.fix(f"{name} normalises over all of them: without one, the others would change")
    return x


def _pixels(flow: Flow, name: str, module: nn.Module, x: Activation) -> Activation:
    if x.axis == "last" or x.is_flat:
        x.group.fix(f"{name} pools over them")
    return x


def _flatten(flow: Flow, name: str, module: nn.Flatten, x: Activation) -> Activation:
    if (module.start_dim, module.end_dim) != (1, -1):
        x.group.fix(f"{name} flattens other axes than all but the first")
    return x._replace(is_flat=True)


def _in_order(flow: Flow, name: str, module: nn.Module, x: Activation, *keys: str) -> Activation:
    """The outputs of some children of a module, one after the other."""
    for key in keys:
        x = flow.through(f"{name}.{key}" if name else key, module.get_submodule(key), x)
    return x


def _shortcut(flow: Flow, name: str, module: resnet18.Shortcut, x: Activation) -> Activation:
    return _in_order(flow, name, module, x, "conv", "norm")


def _residual_block(flow: Flow, name: str, module: resnet18.Block, x: Activation) -> Activation:
    y = _in_order(flow, name, module, x, "conv1", "norm1", "conv2", "norm2")
    return flow.join(y, _in_order(flow, name, module, x, "shortcut"))


def _resnet18(flow: Flow, name: str, module: resnet18.Resnet18, x: Activation) -> Activation:
    x = _in_order(flow, name, module, x, "conv1", "norm1", "stage1", "stage2", "stage3", "stage4")
    return _in_order(flow, name, module, x._replace(is_flat=True), "fc")


def _attention(flow: Flow, name: str, module: transformer.Attention, x: Activation) -> Activation:
    """Heads: each is a stretch of Q, of K and of V, and of the inputs of `out`."""
    flow.use(x.group, f"{name}.qkv", "in", module.qkv.in_features)
    width = module.out.in_features // module.heads
    heads = flow.produce(f"{name}.qkv", module.heads, "heads", "last", repeat=width, blocks=3).group
    heads.uses += [Use(name, "each"), Use(f"{name}.out", "in", width)]
    return flow.produce(f"{name}.out", module.out.out_features, "neurons", "last")


def _transformer_block(flow: Flow, name: str, module: transformer.Block, x: Activation) -> Activation:
    x = flow.join(x, _in_order(flow, name, module, x, "norm1", "attention"))
    return flow.join(x, _in_order(flow, name, module, x, "norm2", "fc1", "fc2"))


def _transformer(flow: Flow, name: str, module: transformer.Transformer, x: Activation) -> Activation:
    prefix = f"{name}." if name else ""
    tokens, positions = (
        flow.produce(f"{prefix}{key}", module.tokens.embedding_dim, "features", "last")
        for key in ("tokens", "positions")
    )
    return _in_order(flow, name, module, flow.join(tokens, positions), "blocks", "norm", "head")


ELEMENTWISE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Hardswish,
    nn.Hardtanh, nn.Softplus, nn.Identity, nn.Dropout, nn.Dropout2d,
)  # fmt: skip
"""Functions of single elements. They need not keep zero: what reads a removed channel does not read it any more."""
POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)

RULES: dict[type[Any], Rule] = {
    nn.Sequential: _sequential,
    nn.Linear: _linear,
    nn.Conv2d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Flatten: _flatten,
    **dict.fromkeys(ELEMENTWISE, lambda flow, name, module, x: x),
    **dict.fromkeys(POOLING, _pixels),
    resnet18.Shortcut: _shortcut,
    resnet18.Block: _residual_block,
    resnet18.MeanOverPixels: lambda flow, name, module, x: x._replace(is_flat=True),
    resnet18.Resnet18: _resnet18,
    transformer.Attention: _attention,
    transformer.Block: _transformer_block,
    transformer.Transformer: _transformer,
}
"""By the exact type: a subclass may compute something else."""
