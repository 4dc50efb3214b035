"""Check the student's walk over the tape, with operations that are given."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from shoal_labs.autograd.check.given import give_operations
from shoal_labs.autograd.check.operations import same
from shoal_labs.check.fault import Fault, fault

A, B = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([3.0, 0.25, -1.5])


def grad_faults() -> list[Fault]:
    """Everything that is wrong with `grad`: in an example with operations that L does not need, and the second time."""
    tape = import_module("tape")
    give_operations(tape)
    return example_faults(tape) + ([] if differentiates_again(tape) else [fault("not_again")])


def example_faults(tape: Any) -> list[Fault]:
    """What is wrong with the gradients of L = Σ (a + b) · b, with other operations on the tape before and after."""
    a, b, unused = fresh(tape, a=A, b=B, unused=A)
    unused * unused  # pyright: ignore[reportUnusedExpression]
    L = ((a + b) * b).sum()
    a * unused  # pyright: ignore[reportUnusedExpression]
    db, da, none = tape.grad(L, [b, a, unused])
    if none is not None and bool(none.value.any()):
        return [fault("not_needed")]
    if da is None or db is None:
        return [fault("not_reached_back")]
    values = [da.value, db.value]
    if matches(values, B, A + 2 * B):
        return []
    if matches(values, B, A + B) or matches(values, B, B):
        return [fault("not_added")]
    scale = da.value / B
    if matches(values, scale * B, scale * (A + 2 * B)) and same(scale, scale[0].expand(3)):
        return [fault("seed", value=float(scale[0]))]
    return [fault("wrong_gradients")]


def differentiates_again(tape: Any) -> bool:
    """Whether the gradient of Σ a³ has a gradient of its own: 6 a."""
    (a,) = fresh(tape, a=A)
    (slope,) = tape.grad((a * a * a).sum(), [a])
    if slope is None:
        return False
    (bend,) = tape.grad(slope.sum(), [a])
    return bend is not None and same(bend.value, 6 * A)


def fresh(tape: Any, **values: Tensor) -> list[Any]:
    """Variables on an empty tape."""
    tape.reset_tape()
    return [tape.Variable(value, name) for name, value in values.items()]


def matches(values: Sequence[Tensor], *right: Tensor) -> bool:
    """Whether all values are right."""
    return all(map(same, values, right))
