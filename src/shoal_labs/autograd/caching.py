"""A sub-expression that recurs: computed every time it is written, or once and then read from the tape."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from shoal.autograd import Tape, Variable, grad, ops
from shoal_labs.autograd.plan import AutogradPlan
from shoal_labs.timing.contest import Contest, contest, contests

SAMPLES, FEATURES = 64, 128

Computation = Callable[[], object]


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
    """`plain` and `sharing`."""
    plain_entries: int
    sharing_entries: int
    plain_bytes: int
    sharing_bytes: int
    """Of all values that the tape keeps."""


@dataclass(frozen=True)
class Caching:
    """What sharing brings where something recurs, and costs where nothing does."""

    recurring: tuple[Tapes, ...]
    """Forward and backward."""
    distinct: Tapes
    """Forward alone."""


def measure_caching(plan: AutogradPlan) -> Caching:
    """Both computations, the first with growing numbers of recurrences."""
    generator = torch.Generator().manual_seed(plan.seed)
    x = Variable(torch.rand(SAMPLES, FEATURES, generator=generator), name="x")
    w = Variable(torch.rand(FEATURES, FEATURES, generator=generator) / FEATURES, name="W")
    start = Variable(torch.ones(()), name="x")

    def repeated(times: int) -> Computation:
        return lambda: grad(recurring(x, w, times), [w])

    def different() -> Variable:
        return distinct(start, plan.distinct)

    # Only recording looks anything up: a backward pass would merely hide what it costs.
    computations = {times: repeated(times) for times in plan.recurrences}
    times = contests({n: _rivals(one) for n, one in computations.items()}, plan.rounds, plan.contest_s)
    return Caching(
        tuple(_compared(count, computations[count], times[count]) for count in plan.recurrences),
        _compared(plan.distinct, different, contest(_rivals(different), plan.rounds, plan.contest_s)),
    )


def _rivals(computation: Computation) -> dict[str, Computation]:
    return {
        "plain": lambda: _on_a_tape(computation, share=False),
        "sharing": lambda: _on_a_tape(computation, share=True),
    }


def _on_a_tape(computation: Computation, share: bool) -> Tape:
    with Tape(share=share) as tape:
        computation()
    return tape


def _compared(count: int, computation: Computation, time: Contest) -> Tapes:
    plain, sharing = (_on_a_tape(computation, share) for share in (False, True))
    return Tapes(count, time, len(plain), len(sharing), plain.num_bytes, sharing.num_bytes)
