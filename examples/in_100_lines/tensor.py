"""`tensor`: the workers divide every layer, and all compute the same batch (Megatron).

    y = x·Wᵀ + b      column: worker r has some outputs          row: worker r has some inputs
                      yᵣ = x·Wᵣᵀ + bᵣ                            y = Σᵣ xᵣ·Wᵣᵀ + b
                      ∂x = Σᵣ ∂yᵣ·Wᵣ                             ∂xᵣ = ∂y·Wᵣ

    shoal launch --workers 2 examples/in_100_lines/tensor.py

Between a column layer and a row layer the activation stays divided: tanh takes each element alone. The pair has to
communicate at its two ends only, with two functions, each of which is the backward pass of the other:

    enter     forward: nothing              backward: all-reduce of ∂x
    leave     forward: all-reduce of y      backward: nothing

Phase 1, divide: layer 0 by columns, layer 2 by rows; layer 4 stays whole on every worker. Phase 2, forward and backward
of the whole batch. Phase 3, update: each worker updates its parts. No gradient is exchanged: a part has one owner, and
a whole parameter has the same gradient on every worker.

Costs, for each pair of layers: one all-reduce of [samples, outputs] forward, one of [samples, inputs] backward (none if
the inputs are data). Each worker holds 1/W of the parameters, gradients and optimizer state of divided layers.
"""

from typing import Any

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report, require
from torch import Tensor, nn
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group


class Enter(torch.autograd.Function):
    """The whole input of a column layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        """x: every worker has all of it."""
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """∂x = Σᵣ ∂yᵣ·Wᵣ."""
        total = gradient.clone()
        ctx.group.all_reduce(total).wait()
        return total, None


class Leave(torch.autograd.Function):
    """The whole output of a row layer."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Group) -> Tensor:
        """y = Σᵣ xᵣ·Wᵣᵀ."""
        total = part.clone()
        group.all_reduce(total).wait()
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """∂y: every worker has all of it."""
        return gradient, None


DIVIDED = {"0.weight": 0, "0.bias": 0, "2.weight": 1}
"""The dimension along which a parameter is divided; others are whole. The row layer adds its bias after the sum."""


def train(group: Group, model: nn.Sequential, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """The weights after one step per batch, the parts joined to look at them."""
    # Phase 1, divide.
    mine = dict(model.named_parameters())
    for name, dim in DIVIDED.items():
        mine[name] = nn.Parameter(mine[name].detach().chunk(group.size, dim)[group.rank].clone())
    optimizer = make_optimizer(mine.values())
    for inputs, labels in batches:
        # Phase 2, forward and backward.
        optimizer.zero_grad()
        column = torch.tanh(F.linear(Enter.apply(inputs, group), mine["0.weight"], mine["0.bias"]))
        row = Leave.apply(F.linear(column, mine["2.weight"]), group) + mine["2.bias"]
        outputs = F.linear(torch.tanh(row), mine["4.weight"], mine["4.bias"])
        loss = F.cross_entropy(outputs, labels, reduction="sum") / len(labels)
        loss.backward()
        # Phase 3, update.
        optimizer.step()
    for name, dim in DIVIDED.items():
        part = mine[name].detach()
        parts = part.new_empty(group.size, *part.shape)
        group.all_gather(parts, part.contiguous()).wait()
        mine[name] = torch.cat(list(parts), dim)
    return mine


if __name__ == "__main__":
    group = join()
    require(12 % group.size == 0, f"{group.size} workers cannot divide layers of 12 outputs")
    did = f"tensor: {group.size} workers, layers 0 and 2 divided"
    report(group, did, train(group, network(), batches(), adam))
