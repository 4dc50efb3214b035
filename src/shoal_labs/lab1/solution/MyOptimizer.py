# ruff: noqa: N999
"""Three optimizers of your own: gradient descent, stochastic gradient descent, Adam.

After `loss.backward()` every parameter has its gradient in `param.grad`.
`step` turns the gradients into new parameters; `zero_grad` clears them, because backward adds to them.
"""

from collections.abc import Iterable

import torch


class BaseOptimizer:
    """The base of all optimizers: the parameters, the learning rate, clearing the gradients."""

    def __init__(self, params: Iterable[torch.Tensor], lr: float) -> None:
        self.params = list(params)  # a list: model.parameters() can be iterated only once
        self.lr = lr

    def step(self) -> None:
        """Turn gradients into new parameters."""
        raise NotImplementedError("every optimizer needs a step of its own")

    def zero_grad(self) -> None:
        """Clear the gradients before the next backward pass."""
        for param in self.params:
            if param.grad is not None:
                # task: zero_grad
                param.grad.detach_()
                param.grad.zero_()
                # end: zero_grad


class GdOptimizer(BaseOptimizer):
    """Gradient descent: it gets the gradient of the whole training set."""

    @torch.no_grad()
    def step(self) -> None:
        """Move along the exact gradient."""
        for param in self.params:
            if param.grad is not None:
                # task: gd_step
                param -= self.lr * param.grad
                # end: gd_step


class SgdOptimizer(BaseOptimizer):
    """Stochastic gradient descent: it gets the gradient of a random batch."""

    @torch.no_grad()
    def step(self) -> None:
        """Move along the batch's gradient."""
        for param in self.params:
            if param.grad is not None:
                # task: sgd_step
                # The rule is GdOptimizer's. What is stochastic is the batch, and that is chosen in model.py.
                param -= self.lr * param.grad
                # end: sgd_step


class AdamOptimizer(BaseOptimizer):
    """Adam: steps scaled by running means of the gradient (m) and of its square (v)."""

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float = 1e-3,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, lr)
        self.b1, self.b2, self.eps = b1, b2, eps
        # task: adam_state
        self.steps = 0
        self.m = [torch.zeros_like(param) for param in self.params]
        self.v = [torch.zeros_like(param) for param in self.params]
        # end: adam_state

    @torch.no_grad()
    def step(self) -> None:
        """Move along m / √v, both corrected for their start at zero."""
        # task: adam_step
        self.steps += 1
        for param, m, v in zip(self.params, self.m, self.v, strict=True):
            if param.grad is not None:
                m.mul_(self.b1).add_(param.grad, alpha=1 - self.b1)
                v.mul_(self.b2).addcmul_(param.grad, param.grad, value=1 - self.b2)
                m_hat = m / (1 - self.b1**self.steps)
                v_hat = v / (1 - self.b2**self.steps)
                param -= self.lr * m_hat / (v_hat.sqrt() + self.eps)
        # end: adam_step
