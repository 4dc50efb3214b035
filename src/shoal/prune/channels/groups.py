"""Groups of channels: what must shrink together so that a network still fits together.

::

    conv1 ──out──▶ [ channels ] ──each── norm1 ──in──▶ conv2          y = x + f(x): the channels of x and of f(x)
                                                                       are one group, and so are all their layers

A layer *produces* channels (`out`), holds parameters for *each* of them, or *reads* them (`in`). The rules of
`rules.py` follow channels through a model in the order of its forward pass.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import nn

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

    def __init__(self, rules: dict[type[nn.Module], Rule]) -> None:
        self.groups: list[ChannelGroup] = []
        self._rules = rules
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
        rule = self._rules.get(type(module))
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
