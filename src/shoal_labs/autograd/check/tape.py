"""Check the student's tape: operations by value, line, entry and gradients; `grad` with given operations."""

from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from typing import Any

import torch
from torch import Tensor

from shoal_labs.check.fault import Fault, fault

A, B = torch.tensor([[2.0, -3.0, 0.5]]), torch.tensor([[7.0, 0.25, -4.0]])
NUMBER = torch.tensor(3.0)
G = torch.tensor([[10.0, 20.0, -30.0]])
"""The gradient of an output of A's shape."""
DOWN = torch.tensor(5.0)
"""The gradient of an output that is a number."""
X, Y = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([3.0, 0.25, -1.5])
"""For `grad`."""


@dataclass(frozen=True)
class Case:
    """What an operation must do."""

    compute: Callable[[Any, Any, Any], Any]
    """The call, from the variables a, b and n."""
    inputs: tuple[str, ...]
    value: Tensor
    line: str
    """What it prints, after the name of the result."""
    upstream: Tensor
    """The gradient that `propagate` is given."""
    gradients: tuple[Tensor, ...]
    """What it must give back, one for each input."""
    errors: dict[str, tuple[Tensor, ...]]
    """What common errors give back, by the key of their sentence."""


CASES = {
    "mul": Case(
        compute=lambda a, b, n: a * b,
        inputs=("a", "b"),
        value=A * B,
        line="a * b",
        upstream=G,
        gradients=(G * B, G * A),
        errors={"swapped": (G * A, G * B), "no_chain_rule": (B, A)},
    ),
    "add": Case(
        compute=lambda a, b, n: a + b,
        inputs=("a", "b"),
        value=A + B,
        line="a + b",
        upstream=G,
        gradients=(G, G),
        errors={"no_chain_rule": (torch.ones(1, 3), torch.ones(1, 3)), "like_mul": (G * B, G * A)},
    ),
    "sum": Case(
        compute=lambda a, b, n: a.sum(),
        inputs=("a",),
        value=A.sum(),
        line="a.sum()",
        upstream=DOWN,
        gradients=(DOWN.expand(1, 3),),
        errors={
            "not_expanded": (DOWN,),
            "no_chain_rule": (torch.ones(1, 3),),
            "mean": (DOWN.expand(1, 3) / 3,),
        },
    ),
    "expand": Case(
        compute=lambda a, b, n: n.expand(1, 3),
        inputs=("n",),
        value=NUMBER.expand(1, 3),
        line="n.expand([1, 3])",
        upstream=G,
        gradients=(G.sum(),),
        errors={"not_summed": (G,), "no_chain_rule": (torch.ones(()),), "mean": (G.mean(),)},
    ),
}


def operation_faults(name: str) -> list[Fault]:
    """Everything that is wrong with an operation of the student's `tape.py`."""
    tape, case = import_module("tape"), CASES[name]
    give_operations(tape, name)
    tape.reset_tape()
    a, b, n = tape.Variable(A, "a"), tape.Variable(B, "b"), tape.Variable(NUMBER, "n")
    with redirect_stdout(StringIO()) as printed:
        r = case.compute(a, b, n)
    if not isinstance(r, tape.Variable):
        return [fault("not_a_variable", kind=type(r).__name__)]
    found: list[Fault] = []
    if not same(r.value, case.value):
        found.append(fault("wrong_value", line=case.line))
    line = f"{r.name} = {case.line}"
    if printed.getvalue().split() != line.split():
        found.append(fault("not_printed", line=line, printed=" ".join(printed.getvalue().split()) or "—"))
    if len(tape.gradient_tape) != 1:
        return [*found, fault("entries", count=len(tape.gradient_tape))]
    (entry,) = tape.gradient_tape
    if list(entry.inputs) != list(case.inputs) or list(entry.outputs) != [r.name]:
        right = f"{list(case.inputs)}, {[r.name]}"
        found.append(fault("wrong_names", inputs=str(entry.inputs), outputs=str(entry.outputs), right=right))
    return [*found, *propagate_faults(tape, entry, case)]


def propagate_faults(tape: Any, entry: Any, case: Case) -> list[Fault]:
    """What is wrong with the gradients that an entry gives to its inputs."""
    gradients = entry.propagate([tape.Variable(case.upstream, "g")])
    if not isinstance(gradients, list | tuple) or len(gradients) != len(case.inputs):
        count = len(gradients) if isinstance(gradients, list | tuple) else type(gradients).__name__
        return [fault("propagate_count", count=count, right=len(case.inputs))]
    if not all(isinstance(each, tape.Variable) for each in gradients):
        return [fault("gradient_not_a_variable")]
    values = [each.value for each in gradients]
    if all(map(same, values, case.gradients)):
        return []
    for key, wrong in case.errors.items():
        if all(map(same, values, wrong)):
            return [fault(key)]
    off = [
        name
        for name, mine, right in zip(case.inputs, values, case.gradients, strict=True)
        if not same(mine, right)
    ]
    return [fault("wrong_gradient_of", line=case.line, inputs=off)]


def same(mine: Any, right: Tensor) -> bool:
    """Whether a tensor has these numbers, in this shape."""
    return isinstance(mine, Tensor) and mine.shape == right.shape and torch.allclose(mine, right, rtol=1e-5)


def give_operations(tape: Any, *kept: str) -> None:
    """Replace the operations of a student's module, except those named."""

    def record(
        value: Tensor, inputs: Sequence[Any], propagate: Callable[[Any], list[Any]], name: Any = None
    ) -> Any:
        r = tape.Variable(value, name)
        entry = tape.TapeEntry([each.name for each in inputs], [r.name], lambda given: propagate(given[0]))
        tape.gradient_tape.append(entry)
        return r

    def mul(self: Any, rhs: Any) -> Any:
        if not hasattr(rhs, "value"):  # the number 1
            return self
        return record(self.value * rhs.value, [self, rhs], lambda g: [g * rhs, g * self])

    def add(self: Any, rhs: Any) -> Any:
        return record(self.value + rhs.value, [self, rhs], lambda g: [g, g])

    def total(self: Any, name: Any = None) -> Any:
        return record(self.value.sum(), [self], lambda g: [g.expand(*self.value.size())], name)

    def expand(self: Any, sizes: Any) -> Any:
        shape = [n for each in sizes for n in ([each] if isinstance(each, int) else each)]
        return record(self.value.expand(shape), [self], lambda g: [g.sum()])

    for name, operation in {"mul": mul, "add": add, "sum": total, "expand": expand}.items():
        if name not in kept:
            setattr(tape, f"operator_{name}", operation)


def grad_faults() -> list[Fault]:
    """Everything that is wrong with `grad`: in an example with operations that L does not need, and the second time."""
    tape = import_module("tape")
    give_operations(tape)
    return example_faults(tape) + ([] if differentiates_again(tape) else [fault("not_again")])


def example_faults(tape: Any) -> list[Fault]:
    """What is wrong with the gradients of L = Σ (a + b) · b, with other operations on the tape before and after."""
    a, b, unused = fresh(tape, a=X, b=Y, unused=X)
    unused * unused  # pyright: ignore[reportUnusedExpression]
    L = ((a + b) * b).sum()
    a * unused  # pyright: ignore[reportUnusedExpression]
    db, da, none = tape.grad(L, [b, a, unused])
    if none is not None and bool(none.value.any()):
        return [fault("not_needed")]
    if da is None or db is None:
        return [fault("not_reached_back")]
    values = [da.value, db.value]
    if matches(values, Y, X + 2 * Y):
        return []
    if matches(values, Y, X + Y) or matches(values, Y, Y):
        return [fault("not_added")]
    scale = da.value / Y
    if matches(values, scale * Y, scale * (X + 2 * Y)) and same(scale, scale[0].expand(3)):
        return [fault("seed", value=float(scale[0]))]
    return [fault("wrong_gradients")]


def differentiates_again(tape: Any) -> bool:
    """Whether the gradient of Σ a³ has a gradient of its own: 6 a."""
    (a,) = fresh(tape, a=X)
    (slope,) = tape.grad((a * a * a).sum(), [a])
    if slope is None:
        return False
    (bend,) = tape.grad(slope.sum(), [a])
    return bend is not None and same(bend.value, 6 * X)


def fresh(tape: Any, **values: Tensor) -> list[Any]:
    """Variables on an empty tape."""
    tape.reset_tape()
    return [tape.Variable(value, name) for name, value in values.items()]


def matches(values: Sequence[Tensor], *right: Tensor) -> bool:
    """Whether all values are right."""
    return all(map(same, values, right))
