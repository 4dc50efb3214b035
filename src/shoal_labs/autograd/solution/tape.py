# ruff: noqa: T201
"""A tape that prints itself: every value has a name, and an entry names its inputs and outputs.

An operation computes its value at once, prints itself, and appends an entry to `gradient_tape`.
The tape therefore has the order of the computation, and `grad` walks it from the end to the beginning.
Gradients are variables with entries of their own, so they can be differentiated again.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class TapeEntry(NamedTuple):
    """One computed operation."""

    inputs: list[str]
    """The names of its inputs."""
    outputs: list[str]
    """The names of its outputs."""
    propagate: Callable[[list["Variable"]], list["Variable"]]
    """The chain rule: turns the gradients of the outputs into gradients of the inputs, in the order of the names."""


gradient_tape: list[TapeEntry] = []
"""All operations since `reset_tape`, in order."""
named: dict[str, "Variable"] = {}
"""All variables since `reset_tape` by name."""


def reset_tape() -> None:
    """Forget all operations and variables, and count names from v0 again."""
    global _number
    gradient_tape.clear()
    named.clear()
    _number = 0


_number = 0


def fresh_name() -> str:
    """The next free name of v0, v1, …"""
    global _number
    while f"v{_number}" in named:
        _number += 1
    return f"v{_number}"


class Variable:
    """A tensor with a name; operations on it are recorded."""

    gradient_tape = gradient_tape

    def __init__(self, value: Tensor, name: str | None = None) -> None:
        self.value = value
        self.name = name or fresh_name()
        if self.name in named:
            raise ValueError(
                f"there is a variable {self.name!r} already: choose another name, or reset_tape()"
            )
        named[self.name] = self

    @staticmethod
    def constant(value: Tensor, name: str | None = None) -> "Variable":
        """A variable that starts a computation."""
        variable = Variable(value, name)
        print(f"{variable.name} = {value}")
        return variable

    def __repr__(self) -> str:
        return repr(self.value)

    def __mul__(self, rhs: "Variable | float") -> "Variable":
        return operator_mul(self, rhs)

    def __add__(self, rhs: "Variable") -> "Variable":
        return operator_add(self, rhs)

    def sum(self, name: str | None = None) -> "Variable":
        """The sum of all elements."""
        return operator_sum(self, name)

    def expand(self, *sizes: int | Iterable[int]) -> "Variable":
        """A tensor of this number, such as `expand(2, 3)` or `expand([2, 3])`."""
        return operator_expand(self, sizes)


def operator_mul(self: Variable, rhs: Variable | float) -> Variable:
    """`r = self · rhs`."""
    if isinstance(rhs, float) and rhs == 1.0:
        return self
    rhs = same_shape("*", self, rhs)
    # task: mul
    r = Variable(self.value * rhs.value)
    print(f"{r.name} = {self.name} * {rhs.name}")

    def propagate(dL_doutputs: list[Variable]) -> list[Variable]:
        (dL_dr,) = dL_doutputs
        return [dL_dr * rhs, dL_dr * self]

    gradient_tape.append(TapeEntry([self.name, rhs.name], [r.name], propagate))
    return r
    # end: mul


def operator_add(self: Variable, rhs: Variable) -> Variable:
    """`r = self + rhs`."""
    rhs = same_shape("+", self, rhs)
    # task: add
    r = Variable(self.value + rhs.value)
    print(f"{r.name} = {self.name} + {rhs.name}")

    def propagate(dL_doutputs: list[Variable]) -> list[Variable]:
        (dL_dr,) = dL_doutputs
        return [dL_dr * 1.0, dL_dr * 1.0]

    gradient_tape.append(TapeEntry([self.name, rhs.name], [r.name], propagate))
    return r
    # end: add


def operator_sum(self: Variable, name: str | None = None) -> Variable:
    """`r = Σᵢ selfᵢ`."""
    on_the_tape("sum", self)
    # task: sum
    r = Variable(torch.sum(self.value), name=name)
    print(f"{r.name} = {self.name}.sum()")

    def propagate(dL_doutputs: list[Variable]) -> list[Variable]:
        (dL_dr,) = dL_doutputs
        return [dL_dr.expand(*self.value.size())]

    gradient_tape.append(TapeEntry([self.name], [r.name], propagate))
    return r
    # end: sum


def operator_expand(self: Variable, sizes: Iterable[int | Iterable[int]]) -> Variable:
    """r = self, a number, in every element of a tensor of these sizes."""
    on_the_tape("expand", self)
    shape = [size for each in sizes for size in ([each] if isinstance(each, int) else each)]
    if self.value.dim() != 0:
        raise ValueError(f"expand repeats a number, but {self.name} has shape {tuple(self.value.shape)}")
    # task: expand
    r = Variable(self.value.expand(shape))
    print(f"{r.name} = {self.name}.expand({shape})")

    def propagate(dL_doutputs: list[Variable]) -> list[Variable]:
        (dL_dr,) = dL_doutputs
        return [dL_dr.sum()]

    gradient_tape.append(TapeEntry([self.name], [r.name], propagate))
    return r
    # end: expand


def grad(L: Variable, desired_results: Iterable[Variable]) -> list[Variable | None]:
    """∂L/∂x of the number L for each desired x; None if L does not depend on x."""
    on_the_tape("grad", L)
    if L.value.dim() != 0:
        raise ValueError(
            f"grad needs a number, but {L.name} has shape {tuple(L.value.shape)}: use {L.name}.sum()"
        )
    dL_d: dict[str, Variable] = {}  # the gradients by the names of their variables
    print(f"d{L.name} -----")
    # task: grad
    dL_d[L.name] = Variable(torch.ones((), dtype=L.value.dtype))
    for entry in reversed(gradient_tape):
        if not any(output in dL_d for output in entry.outputs):
            continue  # L does not depend on this operation
        dL_dinputs = entry.propagate([dL_d[output] for output in entry.outputs])
        for input_name, dL_dinput in zip(entry.inputs, dL_dinputs, strict=True):
            # What is used twice has two parts of a gradient, and their sum is the gradient.
            dL_d[input_name] = dL_d[input_name] + dL_dinput if input_name in dL_d else dL_dinput
    # end: grad
    for name, gradient in dL_d.items():
        print(f"d{L.name}_d{name} = {gradient.name}")
    print("-----")
    return [dL_d.get(desired.name) for desired in desired_results]


def on_the_tape(operation: str, variable: Variable) -> None:
    """Raise for a variable from before `reset_tape`, because its gradient would be wrong."""
    if named.get(variable.name) is not variable:
        raise ValueError(f"{operation} got {variable.name!r}, made before reset_tape(): make it again")


def same_shape(operator: str, left: Variable, right: object) -> Variable:
    """The right operand; raises for unequal shapes, which torch would broadcast."""
    if not isinstance(right, Variable):
        raise TypeError(f"{left.name} {operator} {right!r}: make it a variable with Variable.constant")
    on_the_tape(operator, left)
    on_the_tape(operator, right)
    shapes = [tuple(each.value.shape) for each in (left, right)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"{left.name} {operator} {right.name}: shapes {shapes[0]} and {shapes[1]} differ; use expand"
        )
    return right


if __name__ == "__main__":
    a = Variable.constant(torch.tensor([1.0, 2.0]), name="a")
    b = Variable.constant(torch.tensor([3.0, 5.0]), name="b")
    da, db = grad(((a + b) * b).sum(), [a, b])
    print("by the tape:", da, db)
    print("by hand:    ", b, a.value + 2 * b.value)
