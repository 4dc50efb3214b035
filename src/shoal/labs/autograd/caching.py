"""A sub-expression that recurs: computed every time it is written, or once and then read from the tape."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from shoal.autograd import Tape, Variable, grad, ops
from shoal.labs.autograd.contest import Contest, contest
from shoal.labs.autograd.plan import Plan

SAMPLES, FEATURES = 64, 128


def recurring(x: Variable, w: Variable, times: int) -> Variable:
    """Σₖ k · tanh(x W), written as a loop that makes tanh(x W) anew each time."""
    total = ops.tanh(x @ w)
    for factor in range(2, times + 1):
        total = total + ops.tanh(x @ w) * float(factor)
    return total.sum()


def distinct(start: Variable, operations: int) -> Variable:
    """A chain in which no operation occurs twice: there is nothing to share."""
    value = start
    for _ in range(operations):
        value = value * 1.001
    return value


@dataclass(frozen=True)
class Tapes:
    """A computation on a plain and on a sharing tape."""

    count: int
    """How often the sub-expression is written, or how many operations there are."""
    time: Contest
    """Of forward and backward: `plain` and `sharing`."""
    plain_entries: int
    sharing_entries: int
    plain_bytes: int
    sharing_bytes: int
    """Of all values that the tape keeps."""


@dataclass(frozen=True)
class Caching:
    """What sharing brings where something recurs, and costs where nothing does."""

    recurring: tuple[Tapes, ...]
    distinct: Tapes


def measure_caching(plan: Plan) -> Caching:
    """Both computations, the first with growing numbers of recurrences."""
    generator = torch.Generator().manual_seed(plan.seed)
    x = Variable(torch.rand(SAMPLES, FEATURES, generator=generator), name="x")
    w = Variable(torch.rand(FEATURES, FEATURES, generator=generator) / FEATURES, name="W")
    start = Variable(torch.ones(()), name="x")

    def repeated(times: int) -> Callable[[], Variable]:
        return lambda: recurring(x, w, times)

    return Caching(
        tuple(_compared(repeated(times), w, times, plan) for times in plan.recurrences),
        _compared(lambda: distinct(start, plan.distinct), start, plan.distinct, plan),
    )


def _compared(function: Callable[[], Variable], wanted: Variable, count: int, plan: Plan) -> Tapes:
    def differentiated(share: bool) -> Tape:
        with Tape(share=share) as tape:
            grad(function(), [wanted])
        return tape

    rivals: dict[str, Callable[[], object]] = {
        "plain": lambda: differentiated(share=False),
        "sharing": lambda: differentiated(share=True),
    }
    plain, sharing = differentiated(share=False), differentiated(share=True)
    return Tapes(
        count,
        contest(rivals, plan.rounds, plan.contest_s),
        len(plain),
        len(sharing),
        plain.num_bytes,
        sharing.num_bytes,
    )
