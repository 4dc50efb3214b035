"""Adam, and AdamW: Adam with decoupled weight decay."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from shoal.config.sections.values import Fraction, NonNegative
from shoal.optim.elementwise import Elementwise, Group
from shoal.optim.rows import Row, chunks

KERNELS: Mapping[bool, Callable[..., None]] = {
    False: torch._fused_adam_,  # pyright: ignore[reportPrivateUsage]
    True: torch._fused_adamw_,  # pyright: ignore[reportPrivateUsage]
}
"""torch's fused kernels, by whether the decay is decoupled."""


class Adam(Elementwise):
    """Steps scaled by running estimates of the gradient's first and second moment.

    ::

        decay           g ← g + λ·θ                           weight_decay λ
        first moment    m ← β₁·m + (1 − β₁)·g                 betas (β₁, β₂)
        second moment   v ← β₂·v + (1 − β₂)·g²
        step            θ ← θ − η·m̂ / (√v̂ + ε)                lr η, eps ε

    where m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) correct the bias of m₀ = v₀ = 0 in step t. State: two numbers per
    parameter (`exp_avg`, `exp_avg_sq`). `fast` updates with torch's fused kernel.

    >>> weight = torch.tensor([1.0], requires_grad=True)
    >>> optimizer = Adam([weight], lr=0.25)
    >>> (weight**2).backward()
    >>> optimizer.step()                                # the first step has length η for any gradient
    >>> weight
    tensor([0.7500], requires_grad=True)
    """

    limits: ClassVar[Mapping[str, Any]] = {
        "lr": NonNegative,
        "betas": tuple[Fraction, Fraction],
        "eps": NonNegative,
        "weight_decay": NonNegative,
    }
    decoupled: ClassVar[bool] = False
    """Whether the decay acts on the weights directly instead of through the gradient."""
    refused: ClassVar[Mapping[str, Any]] = {
        **Elementwise.refused,
        "amsgrad": False,
        "decoupled_weight_decay": decoupled,
    }
    counts_steps: ClassVar[bool] = True
    nonnegative: ClassVar[Collection[str]] = ("exp_avg_sq",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        fast: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, fast)

    def state_names(self, group: Group) -> tuple[str, ...]:
        """The two moments."""
        return ("exp_avg", "exp_avg_sq")

    def readable(self, rows: Sequence[Row], group: Group, step: int) -> None:
        """The equations, phase by phase as in the docstring."""
        lr, (beta1, beta2), decay = float(group["lr"]), group["betas"], group["weight_decay"]
        # η·m̂ / (√v̂ + ε), rearranged so that no element is divided by a bias correction:
        # (η·c₂/c₁)·m / (√v + ε·c₂)   with c₁ = 1 − β₁ᵗ and c₂ = √(1 − β₂ᵗ).
        correction1, correction2 = 1 - beta1**step, math.sqrt(1 - beta2**step)
        length, eps = lr * correction2 / correction1, group["eps"] * correction2
        for param, grad, exp_avg, exp_avg_sq in chunks(rows):
            slope = grad
            # Decay
            if decay and self.decoupled:
                param.mul_(1 - lr * decay)
            elif decay:
                slope = grad.add(param, alpha=decay)
            # First moment
            exp_avg.lerp_(slope, 1 - beta1)
            # Second moment
            exp_avg_sq.mul_(beta2).addcmul_(slope, slope, value=1 - beta2)
            # Step
            param.addcdiv_(exp_avg, exp_avg_sq.sqrt().add_(eps), value=-length)

    def fused(self, rows: Sequence[Row], group: Group, step: int, found_inf: Tensor | None = None) -> None:
        """The same equations in one pass over memory."""
        params, grads, exp_avgs, exp_avg_sqs = zip(*rows, strict=True)
        beta1, beta2 = group["betas"]
        # The kernel reads the step count on the device; all rows of a call have the same.
        count = torch.full((), step, dtype=torch.float32, device=params[0].device)
        KERNELS[self.decoupled](
            params,
            grads,
            exp_avgs,
            exp_avg_sqs,
            [],
            [count] * len(params),
            lr=float(group["lr"]),
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            found_inf=found_inf,
        )


@final
class AdamW(Adam):
    """Adam with the decay applied to the weights, not to the gradient, so that the moments do not include it.

    ::

        decay           θ ← θ − η·λ·θ                         in place of g ← g + λ·θ

    and the rest is Adam's. All weights shrink at the same rate, independently of their gradients.

    >>> weight = torch.tensor([1.0], requires_grad=True)
    >>> optimizer = AdamW([weight], lr=0.25, weight_decay=0.5)
    >>> weight.grad = torch.zeros(1)
    >>> optimizer.step()
    >>> weight
    tensor([0.8750], requires_grad=True)
    """

    decoupled: ClassVar[bool] = True
    refused: ClassVar[Mapping[str, Any]] = {**Adam.refused, "decoupled_weight_decay": decoupled}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        fast: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, fast)
