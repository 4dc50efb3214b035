"""One machine: the problem that every program of this folder solves, and the weights that it must reach.

    g = Σ ∇ℓ(xₙ, yₙ) / N        over the N samples of a batch
    θ ← update(θ, g)            by one of torch's optimizers

    python examples/in_100_lines/single.py

Phase 1, gradient. Phase 2, update.

In float64: numbers that differ in nothing but the order of their sums agree to about 1e-15.
"""

import sys
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam, Optimizer

from shoal import join
from shoal.comm.group import Group
from shoal.errors import ConfigError

Batches = list[tuple[Tensor, Tensor]]
"""Inputs and labels of each step."""
Weights = dict[str, Tensor]
"""Tensors by the names of the whole model."""
MakeOptimizer = Callable[[Iterable[Tensor]], Optimizer]


def network(seed: int = 0) -> nn.Sequential:
    """Three linear layers, small enough to print."""
    model = nn.Sequential(
        nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 5)
    ).double()
    draw = torch.Generator().manual_seed(seed)  # of its own: thread workers share torch's global one
    for param in model.parameters():
        nn.init.normal_(param, generator=draw)
    return model


def batches(steps: int = 5, samples: int = 12) -> Batches:
    """Random inputs with random labels."""
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(steps, samples, 6, generator=draw, dtype=torch.float64)
    return list(zip(inputs, torch.randint(5, (steps, samples), generator=draw), strict=True))


def adam(params: Iterable[Tensor]) -> Optimizer:
    """The optimizer of all programs: it has a state to divide, and it is not linear in the gradient."""
    return Adam(params, lr=0.01)


def train(model: nn.Module, batches: Batches, make_optimizer: MakeOptimizer) -> Weights:
    """The weights after one step per batch."""
    optimizer = make_optimizer(model.parameters())
    for inputs, labels in batches:
        # Phase 1, gradient: the sum over the samples, divided by their number.
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels, reduction="sum") / len(labels)
        loss.backward()
        # Phase 2, update.
        optimizer.step()
    return dict(model.named_parameters())


def distance(weights: Weights, expected: Weights) -> Tensor:
    """max |a − b| / max |b|, over the tensors that a worker holds."""
    differences = [
        (weights[name] - expected[name]).abs().max() / expected[name].abs().max() for name in weights
    ]
    return torch.stack([torch.zeros((), dtype=torch.float64), *differences]).detach().max()


def report(group: Group, did: str, weights: Weights) -> None:
    """Print on rank 0 how far the weights of any worker are from one machine's."""
    farthest = distance(weights, train(network(), batches(), adam))
    group.all_reduce(farthest, "max").wait()
    if group.rank == 0:
        said = f"{did}; {len(batches())} steps end {farthest.item():.1e} from one machine"
        sys.stdout.write(f"{said}\n")


def require(holds: bool, otherwise: str) -> None:
    """End the program with a sentence unless the condition holds."""
    if not holds:
        raise ConfigError(otherwise)


if __name__ == "__main__":
    report(join(), "single: one worker, nothing moves", train(network(), batches(), adam))
