"""The same function in two engines: ours, and torch.autograd in float64."""

from collections.abc import Callable

import torch
from torch import Tensor

from shoal.autograd import Tape, Variable, grad

TOLERANCE = 1e-10


def assert_close(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert ours.shape == theirs.shape, f"{what}: shape {tuple(ours.shape)} ≠ {tuple(theirs.shape)}"
    assert not ours.requires_grad
    if theirs.numel():
        # Terms are of order one: below the floor a result is what cancellation has left of them.
        gap = (ours - theirs).abs().max().item() / max(theirs.abs().max().item(), 1e-3)
        assert gap <= TOLERANCE, f"{what} differs by {gap:.1e}"


def assert_same_derivatives(
    ours: Callable[..., Variable], theirs: Callable[..., Tensor], inputs: list[Tensor], seed: int = 0
) -> None:
    """Value, gradient, and gradient of a random combination of the gradient, all within 1e-10."""
    generator = torch.Generator().manual_seed(seed)

    leaves = [value.clone().requires_grad_() for value in inputs]
    want = theirs(*leaves)
    weights = torch.randn(want.shape, generator=generator, dtype=torch.float64)
    first = torch.autograd.grad(
        (want * weights).sum(), leaves, create_graph=True, allow_unused=True, materialize_grads=True
    )
    directions = [torch.randn(g.shape, generator=generator, dtype=torch.float64) for g in first]
    slope = sum((g * d).sum() for g, d in zip(first, directions, strict=True))
    if slope.requires_grad:
        second = torch.autograd.grad(slope, leaves, allow_unused=True, materialize_grads=True)
    else:
        second = [torch.zeros_like(leaf) for leaf in leaves]

    with Tape():
        variables = [Variable(value.clone()) for value in inputs]
        have = ours(*variables)
        assert_close(have.value, want.detach(), "value")
        found = grad((have * weights).sum(), variables)
        for position, (a, b) in enumerate(zip(found, first, strict=True)):
            assert_close(a.value, b.detach(), f"gradient of input {position}")
        found = grad((have * weights).sum(), variables, record=True)
        total = sum(((g * d).sum() for g, d in zip(found, directions, strict=True)), start=0.0)
        for position, (a, b) in enumerate(zip(grad(total, variables), second, strict=True)):
            assert_close(a.value, b.detach(), f"second derivative of input {position}")
