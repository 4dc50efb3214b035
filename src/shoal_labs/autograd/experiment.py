"""What is timed against a growing size, and all that the lab measures, in the order of the report.

sharing   a sub-expression that recurs: computed every time it is written, or once and then read from the tape
chain     A B C v: from the left three products of whole matrices, from the right three of a matrix and a vector
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shoal.kit.autograd import Tape, Variable, compile_graph, grad, no_record, ops
from shoal_labs.autograd.course import Branch, Course, run_branch, run_course
from shoal_labs.autograd.networks import Network, measure_network
from shoal_labs.autograd.plan import NETWORKS, AutogradPlan
from shoal_labs.runs import Runs
from shoal_labs.timing.contest import Contest, contest, contests, one_thread

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
    rivals = {size: _orders(factors[size], compiled[size]) for size in factors}
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


def _orders(tensors: Sequence[Tensor], compiled: Callable[..., object]) -> dict[str, Callable[[], object]]:
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


@dataclass(frozen=True)
class AutogradMeasurements:
    """All numbers of the report."""

    plan: AutogradPlan
    course: Course
    branch: Branch
    networks: Mapping[str, Network]
    caching: Caching
    chains: tuple[Chain, ...]


def measure_all(plan: AutogradPlan, runs: Runs) -> AutogradMeasurements:
    """Run every experiment, on one thread."""
    began, parts = time.monotonic(), len(NETWORKS) + 2

    def say(done: int, key: str, **values: Any) -> None:
        """A part begins: its line, with the time left if the others take as long as those done."""
        runs.watch.say(runs.with_time_left(runs.words(key, **values), began, done, parts - done))

    with one_thread():
        runs.say("progress.course")
        course, branch = run_course(plan.seed), run_branch()
        networks: dict[str, Network] = {}
        for done, name in enumerate(NETWORKS):
            say(done, "progress.network", network=name, rounds=plan.rounds)
            found = networks[name] = measure_network(name, plan)
            runs.say("progress.step", dynamic=found.step.ms("dynamic"), static=found.step.ms("static"))
        say(parts - 2, "progress.caching")
        caching = measure_caching(plan)
        say(parts - 1, "progress.chains")
        return AutogradMeasurements(plan, course, branch, networks, caching, measure_chains(plan))
