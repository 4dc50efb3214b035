"""A computation as data: the operations of a function, without values."""

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, final

import torch
from torch import Tensor

from shoal.autograd.refusals import depends_on_data, is_ours
from shoal.autograd.tape import Primitive, Tape, Tracing
from shoal.autograd.variable import Variable
from shoal.errors import AutogradError


@final
@dataclass(frozen=True, eq=False)
class Value:
    """The shape and dtype of a tensor, and its source if no operation computes it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: str = "computed"
    """`computed` by an operation, `input` of a call, `leaf` (memory that is read in each call) or `constant`."""
    tensor: Tensor | None = None
    """The memory of a leaf or a constant."""
    name: str | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.dtype.itemsize


Operand = Value | float


def replaced(operand: Any, instead: dict[Value, Value]) -> Any:
    """The value that replaces an operand, also over several replacements; the operand itself if there is none."""
    while isinstance(operand, Value) and operand in instead:
        operand = instead[operand]
    return operand


@final
@dataclass(frozen=True, eq=False)
class Operation:
    """One application of a primitive."""

    primitive: Primitive
    inputs: tuple[Operand, ...]
    outputs: tuple[Value, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    is_backward: bool = False

    @property
    def name(self) -> str:
        """The primitive's name."""
        return self.primitive.name

    @property
    def values(self) -> list[Value]:
        """The inputs without the numbers."""
        return [operand for operand in self.inputs if isinstance(operand, Value)]

    def reading(self, instead: dict[Value, Value]) -> "Operation":
        """The same operation with its inputs replaced."""
        return replace(self, inputs=tuple([replaced(operand, instead) for operand in self.inputs]))


@final
@dataclass(frozen=True, eq=False)
class Graph:
    """Operations in topological order: each value is computed before it is used."""

    inputs: tuple[Value, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Value, ...]
    deliveries: tuple[tuple[Variable, Value], ...] = ()
    """Parameters, and the values to add to their `value.grad`."""

    def num_uses(self) -> dict[Value, int]:
        """How often each value is read, by operations or as a result."""
        uses = Counter(value for operation in self.operations for value in operation.values)
        uses.update(self.outputs)
        uses.update(value for _, value in self.deliveries)
        return uses

    def rewritten(self, operations: Sequence[Operation], instead: dict[Value, Value]) -> "Graph":
        """The same graph with other operations, and the values of `instead` replaced wherever they are read."""
        return Graph(
            self.inputs,
            tuple([o.reading(instead) for o in operations]),
            tuple(replaced(value, instead) for value in self.outputs),
            tuple((parameter, replaced(value, instead)) for parameter, value in self.deliveries),
        )

    def listing(self) -> str:
        """One line for each operation: `v2[64, 128] = matmul(x, fc1.weight, transpose_b=True)`.

        A constant of one element is written as its number; a larger one has a line of its own.
        """
        names: dict[Value, str] = {}
        lines: list[str] = []

        def name(operand: Operand) -> str:
            if not isinstance(operand, Value):
                return f"{operand:g}"
            if operand.kind == "constant" and operand.tensor is not None and not operand.name:
                if operand.tensor.numel() == 1:
                    return f"{operand.tensor.item():g}"
                if operand not in names:
                    lines.append(f"v{len(names)}{list(operand.shape)} = a constant")
            return names.setdefault(operand, operand.name or f"v{len(names)}")

        for operation in self.operations:
            arguments = [name(operand) for operand in operation.inputs]
            arguments += [f"{key}={value}" for key, value in operation.attributes.items()]
            results = ", ".join(f"{name(value)}{list(value.shape)}" for value in operation.outputs)
            lines.append(f"{results} = {operation.name}({', '.join(arguments)})")
        return "\n".join(lines)


def trace(function: Callable[..., Any], examples: Sequence[Tensor]) -> Graph:
    """Run a function once on placeholders, which have shapes and no values, and return its operations.

    Derivatives that the function takes are included: forward and backward form one graph. A plain tensor that the
    function uses becomes a constant. A leaf (a parameter) is read whenever the graph runs.

    >>> x = torch.ones(3)
    >>> print(trace(lambda x: (x * 2.0 + x).sum(), [x]).listing())
    v1[3] = mul(input0, 2)
    v2[3] = add(v1, input0)
    v3[] = sum(v2, dims=(0,), keep=False)
    """
    stand_ins: dict[int, tuple[Any, Tensor]] = {}

    def stand_in(operand: Any) -> Any:
        value = operand.value if type(operand) is Variable else operand
        if not isinstance(value, Tensor) or value.is_meta:
            return value
        if id(operand) not in stand_ins:  # keeps the operand alive, so that its id stays valid
            stand_ins[id(operand)] = (operand, torch.empty_like(value, device="meta"))
        return stand_ins[id(operand)][1]

    tape = Tape()
    tape.tracing = tracing = Tracing(stand_in, examples[0].device if examples else torch.device("cpu"))
    placeholders = [  # unchecked: inputs may be integers, which a user's variable may not hold
        Variable.unchecked(torch.empty_like(example.detach(), device="meta"), f"input{position}")
        for position, example in enumerate(examples)
    ]
    with tape:
        results = _run(function, placeholders)
    return _from_tape(tape, tracing.constants, placeholders, results, tracing.deliveries)


def graph_of(tape: Tape, *results: Variable) -> Graph:
    """The entries of a dynamic tape as a graph with the outputs `results`.

    >>> with Tape() as tape:
    ...     a = Variable(torch.ones(2), name="a")
    ...     print(graph_of(tape, a * a).listing())
    v1[2] = mul(a, a)
    """
    return _from_tape(tape, set(), (), results, ())


def _run(function: Callable[..., Any], placeholders: Sequence[Variable]) -> tuple[Variable, ...]:
    try:
        result = function(*placeholders)
    except (RuntimeError, NotImplementedError) as error:
        if isinstance(error, AutogradError) or "meta" not in str(error).lower():
            raise
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_ours(f.filename)]
        users = [f for f in frames if "/torch/" not in f.filename]
        where = (
            f"{users[-1].filename.rpartition('/')[2]}:{users[-1].lineno}: {users[-1].line}" if users else ""
        )
        raise depends_on_data("a Python number", where) from error
    results: tuple[Any, ...] = tuple(result) if isinstance(result, tuple | list) else (result,)
    for position, value in enumerate(results):
        if type(value) is not Variable:
            raise AutogradError(
                f"a compiled function returns variables, but result {position} is a {type(value).__name__}",
                "Return results of the operations of shoal.autograd.",
            )
    return results


def _from_tape(
    tape: Tape,
    constants: set[Variable],
    placeholders: Sequence[Variable],
    results: Sequence[Variable],
    deliveries: Sequence[tuple[Variable, Variable]],
) -> Graph:
    values: dict[int, Value] = {}

    def value_of(operand: Any) -> Any:
        if not isinstance(operand, Variable | Tensor):
            return float(operand)
        if id(operand) not in values:
            tensor = operand.value if type(operand) is Variable else operand
            constant = type(operand) is not Variable or operand in constants
            name = operand.name if type(operand) is Variable else None
            kind = "constant" if constant else "leaf"
            values[id(operand)] = Value(tuple(tensor.shape), tensor.dtype, kind, tensor, name)
        return values[id(operand)]

    for placeholder in placeholders:
        value = placeholder.value
        values[id(placeholder)] = Value(tuple(value.shape), value.dtype, "input", None, placeholder.name)
    operations: list[Operation] = []
    for index, entry in enumerate(tape.entries):
        inputs = tuple([value_of(operand) for operand in entry.inputs])
        for output in entry.outputs:
            values[id(output)] = Value(tuple(output.shape), output.dtype, name=output.name)
        outputs = tuple([values[id(output)] for output in entry.outputs])
        is_backward = any(start <= index < end for start, end in tape.backward_spans)
        operations.append(Operation(entry.primitive, inputs, outputs, entry.attributes, is_backward))
    return Graph(
        tuple(values[id(placeholder)] for placeholder in placeholders),
        tuple(operations),
        tuple(value_of(result) for result in results),
        tuple((parameter, value_of(gradient)) for parameter, gradient in deliveries),
    )
