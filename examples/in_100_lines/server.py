"""`server`, mode bsp: the last rank holds weights and optimizer; the others pull weights and push gradients.

    worker 0   ◀─ θ ─ forward, backward ─ g₀ ─┐                              ┌─▶ next step
    worker 1   ◀─ θ ─ forward, backward ─ g₁ ─┤                              ├─▶ next step
    server            waits                   └─ g = Σ gᵢ, θ ← update(θ, g) ─┘

    shoal launch --workers 3 examples/in_100_lines/server.py

Phase 1, pull: the server sends its weights to every worker. Phase 2, gradients of each worker's share, divided by the
samples of all. Phase 3, push: the workers send them to the server. Phase 4, update: on the server, with their sum.

All workers wait for the slowest. The asynchronous modes differ in one place: phase 4 updates with each gradient as it
arrives (`sender=ANYONE`), and replies to its sender alone; they do not equal one machine.

Costs, for P bytes of parameters on W workers: each worker sends P and receives P a step, the server W times as much. A
worker holds parameters and gradients, the server parameters, one gradient after the other, and the optimizer state.
"""

import torch
from single import Batches, MakeOptimizer, Weights, adam, batches, network, report, require
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from shoal import join
from shoal.comm.group import Group


def serve(group: Group, model: nn.Module, num_steps: int, make_optimizer: MakeOptimizer) -> None:
    """The server: the last rank."""
    optimizer = make_optimizer(model.parameters())
    pushed = torch.empty_like(parameters_to_vector(model.parameters()).detach())
    workers = range(group.size - 1)
    for _ in range(num_steps):
        # Phase 1, pull.
        for worker in workers:
            group.send(parameters_to_vector(model.parameters()), worker).wait()
        # Phase 3, push.
        total = torch.zeros_like(pushed)
        for worker in workers:
            group.recv(pushed, worker).wait()
            total += pushed
        # Phase 4, update.
        sizes = [param.numel() for param in model.parameters()]
        for param, gradient in zip(model.parameters(), total.split(sizes), strict=True):
            param.grad = gradient.view_as(param)
        optimizer.step()


def work(group: Group, model: nn.Module, batches: Batches) -> None:
    """A worker."""
    server = group.size - 1
    for inputs, labels in batches:
        # Phase 1, pull.
        weights = torch.empty_like(parameters_to_vector(model.parameters()).detach())
        group.recv(weights, server).wait()
        vector_to_parameters(weights, model.parameters())
        # Phase 2, gradients of this worker's share.
        x, y = (each.tensor_split(server)[group.rank] for each in (inputs, labels))
        model.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(labels)
        loss.backward()
        # Phase 3, push.
        group.send(parameters_to_vector([param.grad for param in model.parameters()]), server).wait()


def train(group: Group, model: nn.Module, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """On the server, the weights after one step per batch; the workers lack the last update."""
    if group.rank == group.size - 1:
        serve(group, model, len(batches), make_optimizer)
        return dict(model.named_parameters())
    work(group, model, batches)
    return {}


if __name__ == "__main__":
    group = join()
    require(
        group.size > 1, "a server needs workers: shoal launch --workers 3 examples/in_100_lines/server.py"
    )
    weights = train(group, network(), batches(), adam)
    report(group, f"server, bsp: {group.size - 1} workers push to rank {group.size - 1}", weights)
