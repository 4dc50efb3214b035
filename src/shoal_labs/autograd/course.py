"""The course's worked example: recorded, differentiated, printed, compiled, drawn."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.kit.autograd import Tape, Variable, compile_graph, drawing, example, grad, gradient_check
from shoal.kit.base import AutogradError

ELEMENTS = 4

Writer = Callable[[str], None]


def simple(a: Variable, b: Variable) -> Variable:
    """t = a + b, c = t · b."""
    t = a + b
    return t * b


def worked(a_value: Tensor, b_value: Tensor, write: Writer) -> tuple[Tensor, Tensor]:
    """Record L = Σ c and walk back; all that happens is written."""
    with Tape(trace=True, write=write):
        a, b = Variable(a_value, name="a"), Variable(b_value, name="b")
        loss = simple(a, b).sum()
        da, db = grad(loss, [a, b])
    return da.value, db.value


def doubled_if_positive(x: Variable) -> Variable:
    """A branch that depends on the data."""
    if float(x.sum()) > 0:
        return x * 2.0
    return x


@dataclass(frozen=True)
class Course:
    """What came out."""

    a: Tensor
    b: Tensor
    da: Tensor
    db: Tensor
    trace: tuple[str, ...]
    """The printed tape."""
    error: float
    """Largest difference from ∂L/∂a = b and ∂L/∂b = a + 2b, relative to the largest gradient."""
    slope_error: float
    """The same against central differences."""
    operations_written: int
    operations_compiled: int
    source: str
    """What the compiler wrote for the same computation."""
    svg: str


@dataclass(frozen=True)
class Branch:
    """What became of a branch on data."""

    dynamic_works: bool
    refusal: str
    """The compiler's sentence; empty where it did not refuse."""


def run_course(seed: int) -> Course:
    """The example on random numbers."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(ELEMENTS, generator=generator) for _ in range(2))
    lines: list[str] = []
    da, db = worked(a, b, lines.append)
    plan = compile_graph(_loss_and_gradients).plan(a, b)
    return Course(
        a=a,
        b=b,
        da=da,
        db=db,
        trace=tuple(lines),
        error=max(relative(da, b), relative(db, a + 2 * b)),
        slope_error=gradient_check(simple, a.double(), b.double(), tolerance=float("inf")),
        operations_written=plan.stages[0].num_operations,
        operations_compiled=plan.stages[-1].num_operations,
        source=plan.source,
        svg=drawing.svg(example("course")),
    )


def run_branch() -> Branch:
    """The same branch on the tape and in the compiler."""
    with Tape():
        high, low = (doubled_if_positive(Variable(torch.full((2,), value))).value for value in (1.0, -1.0))
    try:
        compile_graph(doubled_if_positive, torch.ones(2))
        refusal = ""
    except AutogradError as error:
        refusal = str(error)
    return Branch(high.tolist() == [2.0, 2.0] and low.tolist() == [-1.0, -1.0], refusal)


def relative(found: Tensor, wanted: Tensor) -> float:
    """max|found − wanted| / max|wanted|."""
    return float((found - wanted).abs().max() / wanted.abs().max())


def _loss_and_gradients(a: Variable, b: Variable) -> list[Variable]:
    loss = simple(a, b).sum()
    return [loss, *grad(loss, [a, b])]
