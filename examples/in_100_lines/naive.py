"""`naive`: after backward, the workers add up the gradient of one parameter after the other.

    gᵢ = Σ ∇ℓ(xₙ, yₙ) / N        over worker i's samples; N counts the samples of all workers
    g  = Σᵢ gᵢ                   one all-reduce per parameter
    θ  ← update(θ, g)            the same on every worker

    shoal launch --workers 2 examples/in_100_lines/naive.py

Phase 1, start alike: rank 0's weights. Then in every step: phase 2, gradients of this worker's share; phase 3, add them
up over the workers; phase 4, update.

A sum divided by the global N, and no mean of the workers' means: shares need not be equal, and may be empty.

Costs, for P bytes of parameters on W workers: each sends 2P·(W − 1)/W a step, in one message after the other, while
nothing is computed. Each holds parameters, gradients and optimizer state of the whole model.
"""

from single import Batches, MakeOptimizer, Weights, adam, batches, network, report
from torch import nn
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group


def train(group: Group, model: nn.Module, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """This worker's weights after one step per batch."""
    # Phase 1, start alike.
    for param in model.parameters():
        group.broadcast(param, root=0).wait()
    optimizer = make_optimizer(model.parameters())
    for inputs, labels in batches:
        # Phase 2, gradients of this worker's share.
        x, y = (each.tensor_split(group.size)[group.rank] for each in (inputs, labels))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
        # Phase 3, add up.
        for param in model.parameters():
            group.all_reduce(param.grad).wait()
        # Phase 4, update: equal weights and equal gradients stay equal, to the bit.
        optimizer.step()
    return dict(model.named_parameters())


if __name__ == "__main__":
    group, model = join(), network()
    did = f"naive: {group.size} workers, {len(list(model.parameters()))} all-reduces a step"
    report(group, did, train(group, model, batches(), adam))
