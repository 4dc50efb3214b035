"""What a training step is checked with: a small network, and an optimizer that records its calls."""

from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

RATE = 0.5
TOLERANCE = 1e-5


def network() -> nn.Module:
    """A small network for the lab's images, always with the same weights."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(torch.randn(param.shape, generator=generator) / 28)
    return model


def samples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures and labels."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.randn(count, 1, 28, 28, generator=generator)
    return pictures, torch.randint(0, 10, (count,), generator=generator)


class NotingOptimizer(torch.optim.SGD):
    """SGD that records its calls and the gradients of its steps."""

    def __init__(self, params: Iterable[Tensor], notes: list[str]) -> None:
        self.notes = notes
        self.used: list[list[Tensor] | None] = []
        super().__init__(params, lr=RATE)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, and record the call."""
        self.notes.append("zero_grad")
        super().zero_grad(set_to_none)

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Record the gradient, and step."""
        self.notes.append("step")
        params = [param for group in self.param_groups for param in group["params"]]
        missing = any(param.grad is None for param in params)
        self.used.append(None if missing else [param.grad.detach().clone() for param in params])
        return super().step(closure)


def gradient_of(model: nn.Module, pictures: Tensor, labels: Tensor) -> tuple[float, list[Tensor]]:
    """The loss of a batch, and its gradient."""
    loss = nn.functional.cross_entropy(model(pictures), labels)
    return loss.item(), list(torch.autograd.grad(loss, list(model.parameters())))


def alike(a: list[Tensor] | None, b: list[Tensor]) -> bool:
    """Whether two gradients are the same but for rounding."""
    return a is not None and all(
        torch.allclose(x, y, rtol=1e-3, atol=TOLERANCE) for x, y in zip(a, b, strict=True)
    )


def is_number(value: object) -> bool:
    """A float of Python or numpy; not a tensor, which would keep the whole graph of its step alive.

    >>> is_number(0.5), is_number([0.5])
    (True, False)
    """
    return isinstance(value, Real)
