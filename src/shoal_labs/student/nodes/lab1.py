"""The student's optimizers, as torch's loops call one, and how far they are from torch's of the same rule.

Shoal's loop clears gradients itself. `StudentOptimizer` calls the student's `zero_grad` after each step and adds what
it left to the next gradient, so an optimizer that does not clear them trains as it would in the student's own loop.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from shoal import data, models
from shoal.kit.division import epoch_order
from shoal.kit.settings import from_plain
from shoal_labs.check.student import class_like, with_method, written
from shoal_labs.lab1.plan import BATCH_SIZE, Name
from shoal_labs.student.loop import apart, flat

BETAS = 0.9, 0.999
EQUAL_RATES: dict[Name, float] = {"gd": 0.1, "sgd": 0.1, "adam": 3e-3}


def make_student(rule: str) -> Callable[[Iterable[Tensor], float], Any]:
    """The student's class of this rule, called with parameters and learning rate."""
    if rule == "adam":
        kind = with_method(written("MyOptimizer", "AdamOptimizer"), "step")
        return lambda params, lr: kind(params, lr, *BETAS)
    name = {"gd": "GdOptimizer", "sgd": "SgdOptimizer"}[rule]
    return with_method(class_like("MyOptimizer", "sgd" if rule == "sgd" else name.lower(), name), "step")


class StudentOptimizer(torch.optim.Optimizer):
    """A student's optimizer as torch's loops call one."""

    def __init__(self, params: Iterable[Tensor], rule: str, lr: float) -> None:
        self._given = list(params)
        super().__init__(self._given, {"lr": lr})
        # An iterator, like model.parameters(): it can be consumed only once.
        self._own = make_student(rule)(iter(self._given), lr)
        self._left: list[Tensor | None] = [None] * len(self._given)

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Add what the last zero_grad left, step, and clear the gradients."""
        for param, left in zip(self._given, self._left, strict=True):
            if left is not None and param.grad is not None:
                param.grad = param.grad + left
        self._own.step()
        self._own.zero_grad()
        self._left = [_left_of(param.grad) for param in self._given]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients; what the student's own zero_grad left is kept for the next step."""
        for param in self._given:
            param.grad = None


def _left_of(grad: Tensor | None) -> Tensor | None:
    return grad.detach().clone() if grad is not None and bool(grad.any()) else None


def student_optimizer(params: Iterable[Tensor], rule: str, lr: float, code: str) -> StudentOptimizer:
    """For a run's settings, where `code` is the fingerprint of the student's files."""
    return StudentOptimizer(params, rule, lr)


def torchs_optimizer(params: Sequence[Tensor], rule: Name) -> torch.optim.Optimizer:
    """Torch's optimizer of the same rule."""
    rate = EQUAL_RATES[rule]
    return torch.optim.Adam(params, rate, BETAS) if rule == "adam" else torch.optim.SGD(params, rate)


def difference_from_rule(plain: dict[str, Any], rule: Name, steps: int) -> float:
    """How far the weights are from those that torch's optimizer reaches in the same steps.

    Runs in a process with the student's files, in double precision: Adam divides by small numbers.
    """
    config, ends = from_plain(plain), list[Tensor]()
    dataset = data.load(config.data)
    taken = epoch_order(len(dataset.train), config.seed, 0).repeat(steps).split(BATCH_SIZE)[:steps]
    for own in (True, False):
        model = models.build(config.model, dataset.input_shape, dataset.outputs, config.seed).double()
        params = list(model.parameters())
        optimizer = (
            StudentOptimizer(params, rule, EQUAL_RATES[rule]) if own else torchs_optimizer(params, rule)
        )
        for indices in taken:
            batch = dataset.batch(dataset.train, indices)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch.inputs.double()), batch.labels).backward()
            optimizer.step()
        ends.append(flat(model))
    return apart(*ends)
