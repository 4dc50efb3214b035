"""`local`: workers train alone for k steps, then move to their average (local SGD, DiLoCo).

    θᵢ ← update(θᵢ, ḡᵢ)            k times: worker i alone, with the mean gradient over its own samples
    wᵢ = Σ nᵢ / Σ N                its part of the samples of these k steps
    Δ  = Σᵢ wᵢ·(θ − θᵢ)            one all-reduce: how far the workers went, on average
    u  ← μ·u + Δ                   the outer step, with Nesterov momentum
    θ  ← θ − η·(Δ + μ·u),  θᵢ ← θ

    shoal launch --workers 2 examples/in_100_lines/local.py

Phase 1, a step of this worker alone. After every k-th: phase 2, average how far the workers have gone since the last
averaging; phase 3, the outer step. At the end, phase 4: the mean of all workers' weights is the model.

With η = 1, μ = 0 this is local SGD; DiLoCo has η = 0.7, μ = 0.9. For k = 1 and SGD it equals one machine, because then
Σ wᵢ·(θ − lr·ḡᵢ) = θ − lr·g. In general it does not, and the line that this program prints says by how much.

Costs, for P bytes of parameters on W workers: 2P·(W − 1)/W from each, every k steps. Each holds parameters, gradients
and optimizer state of the whole model, and 2P more for θ and u.
"""

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report
from torch import Tensor, nn
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group


def weighted_sum(group: Group, weight: float, tensor: Tensor) -> Tensor:
    """Σᵢ wᵢ·tᵢ over the workers."""
    total = weight * tensor
    group.all_reduce(total).wait()
    return total


def train(
    group: Group,
    model: nn.Module,
    batches: Batches,
    make_optimizer: MakeOptimizer,
    every: int = 2,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
) -> Weights:
    """The mean of all workers' weights after one step per batch."""
    params = list(model.parameters())
    for param in params:
        group.broadcast(param, root=0).wait()
    optimizer = make_optimizer(params)  # its state stays each worker's own
    anchors = [param.detach().clone() for param in params]  # θ
    momenta = [torch.zeros_like(anchor) for anchor in anchors]  # u
    own, of_all = 0, 0  # samples since the last averaging
    for step, (inputs, labels) in enumerate(batches, start=1):
        # Phase 1, alone. A worker without samples steps with a gradient of zero.
        x, y = (each.tensor_split(group.size)[group.rank] for each in (inputs, labels))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="sum") / max(1, len(y))
        loss.backward()
        optimizer.step()
        own, of_all = own + len(y), of_all + len(labels)
        if step % every == 0:
            for param, anchor, momentum in zip(params, anchors, momenta, strict=True):
                # Phase 2, average.
                delta = weighted_sum(group, own / of_all, anchor - param.detach())
                # Phase 3, outer step.
                momentum.mul_(outer_momentum).add_(delta)
                anchor.sub_(outer_lr * (delta + outer_momentum * momentum))
                param.data.copy_(anchor)
            own, of_all = 0, 0
    # Phase 4, one model.
    part = sum(len(labels.tensor_split(group.size)[group.rank]) for _, labels in batches)
    weight = part / sum(len(labels) for _, labels in batches)
    return {name: weighted_sum(group, weight, param.detach()) for name, param in model.named_parameters()}


if __name__ == "__main__":
    group = join()
    did = f"local: {group.size} workers, 1 averaging every 2 steps"
    report(group, did, train(group, network(), batches(), adam))
