"""`onecopy`: all workers of a machine compute with one copy of the weights; each updates its slice of it.

    rank 0    gradients 0 ──┐         ┌── sum of slice 0, update of slice 0 ──┐
                            ├── all ──┤                                       ├── all ── next forward
    rank 1    gradients 1 ──┘  wrote  └── sum of slice 1, update of slice 1 ──┘  wrote

    shoal launch --workers 2 examples/in_100_lines/onecopy.py

Phase 1, map: the parameters become views of one flat memory of all workers, the gradients views of memory that all can
read. Then in every step: phase 2, gradients of this worker's share; phase 3, wait until all have written theirs;
phase 4, each worker sums its slice of all gradients and updates its slice of the weights; phase 5, wait until all have.

Costs two barriers a step, and no message: nobody sends weights or gradients. Memory on W workers with Adam, for P bytes
of parameters: P for the weights of the whole machine, and for each worker P of gradients and 2P/W of optimizer state.

Not safe against the death of a worker in phase 4: the one copy is then half updated.
"""

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report
from torch import nn
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group


def train(group: Group, model: nn.Module, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """The weights after one step per batch: every worker returns the same memory."""
    # Phase 1, map.
    params = list(model.parameters())
    sizes, dtype = [param.numel() for param in params], params[0].dtype
    weights = group.common(sum(sizes), dtype)
    own_gradient = group.empty(sum(sizes), dtype)
    gradients = group.views_of_all(own_gradient)
    for param, value, gradient in zip(params, weights.split(sizes), own_gradient.split(sizes), strict=True):
        if group.rank == 0:
            value.copy_(param.detach().flatten())
        param.data, param.grad = value.view_as(param), gradient.view_as(param)
    group.barrier().wait()
    # The optimizer sees one parameter: this worker's slice.
    start, stop = (sum(sizes) * each // group.size for each in (group.rank, group.rank + 1))
    owned = nn.Parameter(weights[start:stop])
    optimizer = make_optimizer([owned])
    for inputs, labels in batches:
        # Phase 2, gradients of this worker's share: backward adds to the mapped memory.
        x, y = (each.tensor_split(group.size)[group.rank] for each in (inputs, labels))
        own_gradient.zero_()
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
        # Phase 3, wait: no weight is written before all have read it.
        group.barrier().wait()
        # Phase 4, sum and update this worker's slice.
        owned.grad = torch.stack([each[start:stop] for each in gradients]).sum(0)
        optimizer.step()
        # Phase 5, wait: no weight is read before all are written.
        group.barrier().wait()
    return dict(model.named_parameters())


if __name__ == "__main__":
    group = join()
    did = f"onecopy: {group.size} workers, one copy of the weights"
    report(group, did, train(group, network(), batches(), adam))
