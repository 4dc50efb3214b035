"""A B C v: from the left three products of whole matrices, from the right three of a matrix and a vector."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from shoal.autograd import Variable, no_record
from shoal.autograd import compile as compile_graph
from shoal.labs.autograd.contest import Contest, contest
from shoal.labs.autograd.plan import Plan

RIVALS = ("written", "by_hand", "compiled")


def from_the_left(a: Variable, b: Variable, c: Variable, v: Variable) -> Variable:
    """((A B) C) v, as Python reads A @ B @ C @ v."""
    return a @ b @ c @ v


def from_the_right(a: Variable, b: Variable, c: Variable, v: Variable) -> Variable:
    """A (B (C v))."""
    return a @ (b @ (c @ v))


@dataclass(frozen=True)
class Chain:
    """The chain with matrices of one size."""

    size: int
    time: Contest
    """`written` and `by_hand` on the tape, `compiled` from what is written."""
    multiplications_written: int
    multiplications_compiled: int


def measure_chains(plan: Plan) -> tuple[Chain, ...]:
    """The chain at every size of the plan."""
    return tuple(_measure(size, plan) for size in plan.chain_sizes)


def _measure(size: int, plan: Plan) -> Chain:
    generator = torch.Generator().manual_seed(plan.seed)
    matrices = [torch.rand(size, size, generator=generator) / size for _ in range(3)]
    tensors = [*matrices, torch.rand(size, 1, generator=generator)]
    compiled = compile_graph(from_the_left, *tensors)

    def on_the_tape(function: Callable[..., Variable]) -> Callable[[], object]:
        def call() -> None:
            with no_record():
                function(*(Variable(tensor) for tensor in tensors))

        return call

    rivals: dict[str, Callable[[], object]] = {
        "written": on_the_tape(from_the_left),
        "by_hand": on_the_tape(from_the_right),
        "compiled": lambda: compiled(*tensors),
    }
    stages = compiled.plan(*tensors).stages
    return Chain(
        size,
        contest(rivals, plan.rounds, plan.contest_s),
        stages[0].num_multiplications,
        stages[-1].num_multiplications,
    )
