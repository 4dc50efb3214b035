"""What `shoal.OneCopy` and `shoal.zero` share: whole parameters, divided into slices with an optimizer of their own."""

from collections.abc import Collection, Mapping, Sequence
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.events.spans import HostClock, SpanRecorder
from shoal.optim.over import build_over, regroup
from shoal.strategies.norms import in_order
from shoal.strategies.pieces.piece import Place
from shoal.strategies.pieces.slices import Slices
from shoal.strategies.update import MakeOptimizer, ParameterGroups, check_elementwise, parameter_groups


@final
class Trained:
    """A model's parameters as `Slices` takes them: none is divided yet."""

    def __init__(self, params: dict[str, Tensor]) -> None:
        self.params = params
        self.span = SpanRecorder(HostClock())
        self.sharded_over: Sequence[Group] = ()
        self.repeated: Collection[str] = ()
        first = next(iter(params.values())).detach()
        self.zero = first.new_zeros((), dtype=first.dtype.to_real())

    def place_of(self, name: str) -> Place:
        """The whole parameter."""
        return Place.whole(self.params[name])

    def all_norms(self, norms: Mapping[str, Tensor]) -> Tensor:
        """The norms as they are."""
        return in_order(norms)


def groups_of_wholes(make_optimizer: MakeOptimizer, params: Mapping[str, Tensor]) -> ParameterGroups | None:
    """Build the optimizer of whole parameters, to learn their groups and whether it can update slices of them."""
    optimizer = build_over(make_optimizer, params.values())
    check_elementwise(optimizer, "shoal.DistributedDataParallel")
    return parameter_groups(optimizer, params)


def optimizer_of_slices(
    make_optimizer: MakeOptimizer, groups: ParameterGroups | None, slices: Slices
) -> torch.optim.Optimizer:
    """The optimizer of this worker's slices, in the groups of the whole parameters."""
    # An optimizer needs a parameter; a worker may own none of a small model.
    optimizer = build_over(make_optimizer, [*slices.params.values()] or [torch.zeros(1)])
    if groups is not None:
        regroup(optimizer, slices.params, *groups)
    return optimizer


def wholes_in_groups(params: Mapping[str, Tensor], groups: ParameterGroups | None) -> list[list[Tensor]]:
    """The parameters of each group."""
    if groups is None:
        return [[*params.values()]]
    return [
        [param for name, param in params.items() if groups.number_of.get(name) == number]
        for number in range(groups.size)
    ]
