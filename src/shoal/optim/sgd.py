"""Stochastic gradient descent."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from shoal.config.sections.values import Fraction, NonNegative
from shoal.errors import ConfigError
from shoal.optim.elementwise import Elementwise, Group
from shoal.optim.rows import Row, chunks


@final
class SGD(Elementwise):
    """Stochastic gradient descent, with optional momentum, Nesterov's look-ahead and weight decay.

    ::

        decay       g ← g + λ·θ                   weight_decay λ
        momentum    b ← μ·b + g,  b₀ = 0          momentum μ; without it, b is g
        look ahead  d ← g + μ·b                   nesterov; without it, d is b
        step        θ ← θ − η·d                   lr η

    Gradient descent is the same rule on the gradient of the whole training set. State: with momentum one number per
    parameter (`momentum_buffer`), otherwise none. `fast` updates with torch's fused kernel.

    >>> weight = torch.tensor([1.0], requires_grad=True)
    >>> optimizer = SGD([weight], lr=0.25)
    >>> (weight**2).backward()                          # the gradient is 2
    >>> optimizer.step()
    >>> weight
    tensor([0.5000], requires_grad=True)
    """

    limits: ClassVar[Mapping[str, Any]] = {
        "lr": NonNegative,
        "momentum": Fraction,
        "nesterov": bool,
        "weight_decay": NonNegative,
    }
    refused: ClassVar[Mapping[str, Any]] = {**Elementwise.refused, "dampening": 0}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        fast: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            # Always 0 here; torch.optim.SGD requires it in a state that it loads.
            "dampening": 0,
        }
        super().__init__(params, options, fast)

    def state_names(self, group: Group) -> tuple[str, ...]:
        """One buffer with momentum, otherwise none."""
        return ("momentum_buffer",) if group["momentum"] else ()

    def readable(self, rows: Sequence[Row], group: Group, step: int) -> None:
        """The equations, phase by phase as in the docstring."""
        lr, momentum, decay = float(group["lr"]), group["momentum"], group["weight_decay"]
        if not momentum and not decay:
            # Only the step: a single operation has no temporary to keep in the cache.
            params, grads = zip(*rows, strict=True)
            torch._foreach_sub_(params, grads, alpha=lr)  # pyright: ignore[reportPrivateUsage]
            return
        for param, grad, *buffers in chunks(rows):
            direction = grad
            # Decay
            if decay:
                direction = direction.add(param, alpha=decay)
            if momentum:
                # Momentum
                (buffer,) = buffers
                torch.add(direction, buffer, alpha=momentum, out=buffer)
                # Look ahead
                direction = direction.add(buffer, alpha=momentum) if group["nesterov"] else buffer
            # Step
            param.sub_(direction, alpha=lr)

    def fused(self, rows: Sequence[Row], group: Group, step: int, found_inf: Tensor | None = None) -> None:
        """The same equations in one pass over memory."""
        params, grads, *buffers = zip(*rows, strict=True)
        torch._fused_sgd_(  # pyright: ignore[reportPrivateUsage]
            params,
            grads,
            buffers[0] if buffers else [],
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=float(group["lr"]),
            dampening=0.0,
            nesterov=group["nesterov"],
            maximize=False,
            found_inf=found_inf,
            is_first_step=False,  # the buffers start at zero, so the first step is not special
        )

    def check_options(self, group: Group) -> None:
        """Raise a ConfigError for options that are out of range or contradict each other."""
        super().check_options(group)
        if group["nesterov"] and not group["momentum"]:
            raise ConfigError(
                "SGD: nesterov requires momentum, and momentum is 0",
                "Set momentum=0.9, or omit nesterov.",
            )
