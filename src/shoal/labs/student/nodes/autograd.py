"""The student's tape: gradients against torch's, a line that is fitted with them, and what walking back costs."""

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from shoal.labs.student.loop import FAR, apart

POINTS = 32
"""Of the line that is fitted."""
RATE = 0.2
CHAIN = 50
"""Operations of the computation that is timed."""


def points(seed: int) -> tuple[Tensor, Tensor]:
    """Points near a line."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(POINTS, generator=generator)
    return x, 2.0 * x - 1.0 + 0.1 * torch.randn(POINTS, generator=generator)


def gradient_apart(own: Any, right: Tensor) -> float:
    """How far a gradient is from the right one; FAR if the student's `grad` found none of this shape."""
    value = getattr(own, "value", None)
    return FAR if value is None or value.shape != right.shape else apart(value, right)


def residual_sum(tape: Any, w: Any, b: Any, x: Tensor, y: Tensor) -> Any:
    """Σ (w·x + b − y)² on the tape."""
    off = w.expand(POINTS) * tape.Variable(x, "x") + b.expand(POINTS) + tape.Variable(-y, "minus_y")
    return (off * off).sum()


def fitted(seeds: Sequence[int], steps: int) -> list[dict[str, Any]]:
    """Fit a line for every seed."""
    return [fit(seed, steps) for seed in seeds]


def fit(seed: int, steps: int) -> dict[str, Any]:
    """Fit a line twice, with the tape's gradients and with torch's, and compare the gradients of the first step."""
    tape, (x, y) = import_module("tape"), points(seed)
    own, right = torch.zeros(2), torch.zeros(2, requires_grad=True)
    losses, right_losses, first = list[float](), list[float](), FAR
    for step in range(steps):
        tape.reset_tape()
        w, b = tape.Variable(own[0].clone(), "w"), tape.Variable(own[1].clone(), "b")
        loss = residual_sum(tape, w, b, x, y)
        grads = tape.grad(loss, [w, b])
        (right_loss := ((right[0] * x + right[1] - y) ** 2).sum()).backward()
        assert right.grad is not None
        if step == 0:
            first = max(gradient_apart(each, right.grad[place]) for place, each in enumerate(grads))
        # A gradient that was not found moves nothing.
        found = [getattr(each, "value", torch.zeros(())) for each in grads]
        own = own - RATE / POINTS * torch.stack([each.reshape(-1)[0] for each in found])
        right = (right.detach() - RATE / POINTS * right.grad).requires_grad_()
        losses.append(float(loss.value) / POINTS)
        right_losses.append(right_loss.item() / POINTS)
    return {
        "losses": losses,
        "right": right_losses,
        "first": first,
        "second": second_derivative(tape, x),
        "difference": apart(own, right.detach()),
    }


def second_derivative(tape: Any, values: Tensor) -> float:
    """How far the gradient of the gradient of Σ a³ is from 6 a."""
    tape.reset_tape()
    a = tape.Variable(values, "a")
    (slope,) = tape.grad((a * a * a).sum(), [a])
    if slope is None:
        return FAR
    (bend,) = tape.grad(slope.sum(), [a])
    return gradient_apart(bend, 6 * values)


def timed(rounds: int) -> dict[str, Any]:
    """Milliseconds of computing a chain and of walking back, and the entries that each adds to the tape."""
    tape = import_module("tape")
    forward_ms, backward_ms, entries, more = list[float](), list[float](), 0, 0
    for _ in range(rounds + 1):
        tape.reset_tape()
        a = tape.Variable(torch.full((POINTS,), 1.01), "a")
        start_s = time.perf_counter()
        value = a
        for step in range(CHAIN):
            value = value * a if step % 2 else value + a
        loss = value.sum()
        entries, middle_s = len(tape.gradient_tape), time.perf_counter()
        tape.grad(loss, [a])
        end_s, more = time.perf_counter(), len(tape.gradient_tape) - entries
        forward_ms.append(1e3 * (middle_s - start_s))
        backward_ms.append(1e3 * (end_s - middle_s))
    # The first round warms up.
    return {"forward": forward_ms[1:], "backward": backward_ms[1:], "entries": entries, "more": more}
