"""`dp`: rank 0 has data, loss and optimizer; the others run the model on slices of the batch (`nn.DataParallel`).

    rank 0    x ─ scatter ─ forward ─ gather ─ loss ─ scatter ─ backward ─ reduce ─ update ─ broadcast
    others         └ xᵢ ─── forward ─── yᵢ ┘            └ ∂yᵢ ─ backward ─── gᵢ ┘               └ θ

    shoal launch --workers 2 examples/in_100_lines/dp.py

Phase 1, broadcast: every worker receives rank 0's weights. Phase 2, scatter: rank 0 sends each a slice of the inputs.
Phase 3, forward, on every worker. Phase 4, gather: rank 0 receives all outputs and computes the loss of the batch.
Phase 5, scatter: each receives the gradient of its outputs. Phase 6, backward, on every worker. Phase 7, reduce: the
gradients are added up on rank 0. Phase 8, update: on rank 0.

Costs, for P bytes of parameters, X of inputs and Y of outputs on W workers: rank 0's link carries (X + 2Y)·(W − 1)/W
for the slices, weights to all and gradients from all. The others wait while rank 0 computes the loss and updates; they
hold parameters and gradients, but neither data nor optimizer state.
"""

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report
from torch import Tensor, nn
from torch.nn import functional as F

from shoal import join
from shoal.comm.group import Group


def scatter(group: Group, whole: Tensor) -> Tensor:
    """Send every worker its rows, and keep rank 0's."""
    mine, *others = whole.tensor_split(group.size)
    for rank, rows in enumerate(others, start=1):
        group.send(rows, rank).wait()
    return mine


def gather(group: Group, mine: Tensor, num_rows: int) -> Tensor:
    """All workers' rows; backward ends here, and goes on in each worker."""
    whole = torch.empty(num_rows, mine.shape[1], dtype=mine.dtype)
    own, *others = whole.tensor_split(group.size)
    own.copy_(mine.detach())
    for rank, rows in enumerate(others, start=1):
        group.recv(rows, rank).wait()
    return whole.requires_grad_()


def lead(group: Group, model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Phases 2 to 6 on rank 0."""
    mine = model(scatter(group, inputs))
    outputs = gather(group, mine, len(inputs))
    loss = F.cross_entropy(outputs, labels, reduction="sum") / len(labels)
    loss.backward()
    mine.backward(scatter(group, outputs.grad))


def follow(group: Group, model: nn.Module, inputs: Tensor) -> None:
    """Phases 2 to 6 on the others; `inputs` has the shape of a batch, and nothing else is used of it."""
    mine = torch.empty_like(inputs.tensor_split(group.size)[group.rank])
    group.recv(mine, 0).wait()
    outputs = model(mine)
    group.send(outputs, 0).wait()
    gradient = torch.empty_like(outputs)
    group.recv(gradient, 0).wait()
    outputs.backward(gradient)


def train(group: Group, model: nn.Module, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """This worker's weights after one step per batch."""
    optimizer = make_optimizer(model.parameters()) if group.rank == 0 else None
    for inputs, labels in batches:
        # Phase 1, broadcast.
        for param in model.parameters():
            group.broadcast(param, root=0).wait()
            param.grad = None
        # Phases 2 to 6.
        if group.rank == 0:
            lead(group, model, inputs, labels)
        else:
            follow(group, model, inputs)
        # Phase 7, reduce.
        for param in model.parameters():
            group.reduce(param.grad, root=0).wait()
        # Phase 8, update.
        if optimizer is not None:
            optimizer.step()
    return dict(model.named_parameters()) if group.rank == 0 else {}  # the others lack the last update


if __name__ == "__main__":
    group = join()
    did = f"dp: {group.size} workers, rank 0 sends weights and receives gradients"
    report(group, did, train(group, network(), batches(), adam))
