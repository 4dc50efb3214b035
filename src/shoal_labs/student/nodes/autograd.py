"""The student's tape: gradients against torch's, a line that is fitted with them, and what walking back costs."""

import math
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from shoal_labs.student.loop import apart

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


def value_of(gradient: Any, right: Tensor) -> Tensor:
    """A gradient's value, also where it is a bare tensor; what the student's `grad` has not found moves nothing."""
    value = getattr(gradient, "value", gradient)
    return value if isinstance(value, Tensor) else torch.zeros_like(right)


def apart_in_shape(own: Tensor, right: Tensor) -> float:
    """How far a gradient is from the right one; infinite where it has another shape."""
    return apart(own, right) if own.shape == right.shape else math.inf


def residual_sum(tape: Any, w: Any, b: Any, x: Tensor, y: Tensor) -> Any:
    """Σ (w·x + b − y)² on the tape."""
    off = w.expand(POINTS) * tape.Variable(x, "x") + b.expand(POINTS) + tape.Variable(-y, "minus_y")
    return (off * off).sum()


def fitted(seeds: Sequence[int], steps: int) -> list[dict[str, Any]]:
    """Fit a line for every seed."""
    return [fit(seed, steps) for seed in seeds]


def fit(seed: int, steps: int) -> dict[str, Any]:
    """Fit a line twice, with the tape's gradients and with torch's, and compare the gradients of the first step.

    Gradients that have another shape than the number they belong to cannot move it: then there are no steps.
    """
    tape, (x, y) = import_module("tape"), points(seed)
    own, right = torch.zeros(2), torch.zeros(2, requires_grad=True)
    losses, right_losses, first, shapes = list[float](), list[float](), 0.0, list[list[int]]()
    for step in range(steps):
        tape.reset_tape()
        w, b = tape.Variable(own[0].clone(), "w"), tape.Variable(own[1].clone(), "b")
        loss = residual_sum(tape, w, b, x, y)
        (right_loss := ((right[0] * x + right[1] - y) ** 2).sum()).backward()
        assert right.grad is not None
        pairs = zip(tape.grad(loss, [w, b]), right.grad, strict=True)
        found = [value_of(each, its) for each, its in pairs]
        if step == 0:
            shapes = [list(each.shape) for each in found]
            first = max(map(apart_in_shape, found, right.grad))
        if any(each.dim() for each in found):
            break
        own = own - RATE / POINTS * torch.stack(found)
        right = (right.detach() - RATE / POINTS * right.grad).requires_grad_()
        losses.append(float(loss.value) / POINTS)
        right_losses.append(right_loss.item() / POINTS)
    return {
        "losses": losses,
        "right": right_losses,
        "shapes": shapes,
        "first": first,
        "second": second_derivative(tape, x),
        "difference": apart(own, right.detach()) if losses else None,
    }


def second_derivative(tape: Any, values: Tensor) -> float:
    """How far the gradient of the gradient of Σ a³ is from 6 a."""
    tape.reset_tape()
    a, right = tape.Variable(values, "a"), 6 * values
    (slope,) = tape.grad((a * a * a).sum(), [a])
    if not isinstance(slope, tape.Variable):
        return apart_in_shape(value_of(None, right), right)
    (bend,) = tape.grad(slope.sum(), [a])
    return apart_in_shape(value_of(bend, right), right)


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
