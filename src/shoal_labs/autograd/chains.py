"""A B C v: from the left three products of whole matrices, from the right three of a matrix and a vector."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.autograd import Variable, no_record
from shoal.autograd import compile as compile_graph
from shoal_labs.autograd.plan import AutogradPlan
from shoal_labs.timing.contest import Contest, contests

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


def measure_chains(plan: AutogradPlan) -> tuple[Chain, ...]:
    """The chain at every size of the plan."""
    factors = {size: _factors(size, plan.seed) for size in plan.chain_sizes}
    compiled = {size: compile_graph(from_the_left, *tensors) for size, tensors in factors.items()}
    rivals = {size: _rivals(factors[size], compiled[size]) for size in factors}
    times = contests(rivals, plan.rounds, plan.contest_s)
    chains: list[Chain] = []
    for size, tensors in factors.items():
        stages = compiled[size].plan(*tensors).stages
        chains.append(Chain(size, times[size], stages[0].num_multiplications, stages[-1].num_multiplications))
    return tuple(chains)


def _factors(size: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    matrices = [torch.rand(size, size, generator=generator) / size for _ in range(3)]
    return [*matrices, torch.rand(size, 1, generator=generator)]


def _rivals(tensors: Sequence[Tensor], compiled: Callable[..., object]) -> dict[str, Callable[[], object]]:
    def on_the_tape(function: Callable[..., Variable]) -> Callable[[], object]:
        def call() -> None:
            with no_record():
                function(*(Variable(tensor) for tensor in tensors))

        return call

    return {
        "written": on_the_tape(from_the_left),
        "by_hand": on_the_tape(from_the_right),
        "compiled": lambda: compiled(*tensors),
    }
