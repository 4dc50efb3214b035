"""The gradient tape: a list of the operations that were computed, from which derivatives follow.

Every operation on a :class:`Variable` computes its value at once and appends one :class:`TapeEntry`. The list is
therefore in topological order: each value comes after its inputs. The chain rule is one walk from its end to its
beginning (``gradient.py``), without recursion, and its cost is linear in the number of entries.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from shoal.autograd.refusals import Site, call_site, describe, failed, foreign, mixed
from shoal.autograd.variable import Generation, Operand, Variable
from shoal.errors import AutogradError

Rule = Callable[..., Any]
"""`rule(g, output, *inputs, **attributes)`: one input's gradient from the output's gradient `g`.

It is written with the operations of this engine, which take tensors as well as variables: on tensors it only
computes (a first derivative), on variables it is recorded too (and can be differentiated again)."""


@final
class Primitive:
    """An operation with its own differentiation rules; everything else is composed of primitives.

    `backward` holds a rule for each input, None where no gradient flows (indices, masks); by default none flows. With
    `variadic` one rule serves all inputs and receives the input's number as the keyword `position`.
    """

    def __init__(self, forward: Callable[..., Any], symbol: str | None, variadic: bool) -> None:
        self.name = forward.__name__
        self.forward = forward
        self.symbol = symbol
        self.variadic = variadic
        self.backward: tuple[Rule | None, ...] = ()
        self.__doc__ = forward.__doc__

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        """Compute on tensors; compute and record when any input is a variable."""
        for operand in inputs:
            if type(operand) is Variable:
                return record(self, inputs, attributes)
        return self.forward(*inputs, **attributes)

    def rule(self, position: int) -> Rule | None:
        """The rule for the input at `position`."""
        if self.variadic:
            one_for_all = self.backward[0]
            assert one_for_all is not None
            return lambda *args, **attributes: one_for_all(*args, position=position, **attributes)
        return self.backward[position] if position < len(self.backward) else None

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"


def primitive(
    symbol: str | None = None, *, variadic: bool = False
) -> Callable[[Callable[..., Any]], Primitive]:
    """Turn a function on tensors into an operation of the tape; `symbol` is its form in a trace (`{} + {}`)."""
    return lambda forward: Primitive(forward, symbol, variadic)


class TapeEntry(NamedTuple):
    """One recorded operation. Its first output is differentiated; other outputs are indices."""

    primitive: Primitive
    inputs: tuple[Operand, ...]
    outputs: tuple[Variable, ...]
    attributes: dict[str, Any]
    values: list[Any]
    """The inputs as tensors and numbers."""
    tensors: list[Tensor]
    """All tensors that were read or written; none for placeholders."""
    versions: list[int]
    """torch's version counter of each of them at recording time."""
    site: Site

    def propagate(self, gradient: Any, rules: list[Rule], lifted: bool) -> Iterator[Any]:
        """The chain rule for one operation: gradients of inputs, by their rules, from the gradient of the output.

        `lifted`: gradients are variables, whose operations are recorded; otherwise plain tensors.
        """
        outputs: Any = self.outputs if lifted else [output.value for output in self.outputs]
        output = outputs[0] if len(outputs) == 1 else outputs
        inputs = self.inputs if lifted else self.values
        return (rule(gradient, output, *inputs, **self.attributes) for rule in rules)

    def check_unchanged(self) -> None:
        """Raise if a recorded value has been changed in place since: its gradient would be silently wrong."""
        if [tensor._version for tensor in self.tensors] == self.versions:
            return
        tensor, old = next(
            (t, old) for t, old in zip(self.tensors, self.versions, strict=True) if t._version != old
        )
        raise AutogradError(
            f"{self.primitive.name} recorded a value of shape {tuple(tensor.shape)} that was changed"
            f" in place ({tensor._version - old} times), at {describe(self.site)}",
            "Make a new tensor instead (x = x + y, not x += y), or take the gradient first.",
        )

    def written(self, name_of: Callable[[Operand], str]) -> str:
        """`v2 = v0 * v1`: this operation as a line of a trace."""
        operands = [name_of(operand) for operand in self.inputs]
        if self.primitive.symbol and not any(self.attributes.values()):
            right = self.primitive.symbol.format(*operands)
        else:
            options = [f"{key}={value}" for key, value in self.attributes.items()]
            right = f"{self.primitive.name}({', '.join(operands + options)})"
        return f"{', '.join(name_of(output) for output in self.outputs)} = {right}"


@dataclass
class Tracing:
    """The mode in which the compiler records: placeholders without values, gradients included."""

    stand_in: Callable[[Any], Any]
    """Returns the placeholder for an operand that has a value."""
    device: torch.device
    """Where the graph will run."""
    constants: set[Variable] = field(default_factory=set[Variable])
    """Leaves that never change, created by the engine: seeds and zeros."""
    deliveries: list[tuple[Variable, Variable]] = field(default_factory=list[tuple[Variable, Variable]])
    """Parameters, and the gradients to add to their `value.grad`."""

    def constant(self, like: Tensor, number: float) -> Variable:
        """A leaf full of one number, with a real value."""
        variable = Variable(torch.full(like.shape, number, dtype=like.dtype, device=self.device))
        self.constants.add(variable)
        return variable


class Tape:
    """The operations computed since the last `reset`, in order. `with tape:` makes it the current tape.

    Every thread has a default tape. `trace=True` prints each operation and each gradient as it happens:

    >>> with Tape(trace=True):
    ...     a = Variable(torch.tensor(2.0), name="a")
    ...     t = a * a + 1.0
    v0 = a * a
    v1 = v0 + 1.0

    `share=True` caches: an operation that is on the tape already, with the same inputs, is not computed again.
    This saves work where expressions recur, and costs a look-up for every operation.

    Memory: a tape keeps every value until it is reset or dropped.
    """

    def __init__(
        self, *, trace: bool = False, share: bool = False, write: Callable[[str], None] = print
    ) -> None:
        self.entries: list[TapeEntry] = []
        self.backward_spans: list[tuple[int, int]] = []
        """Ranges of entries that were recorded by differentiating."""
        self.share = share
        self.seen: dict[Any, TapeEntry] = {}
        self.trace = trace
        self.write = write
        self.generation = Generation(self)
        self.tracing: Tracing | None = None
        self._names: dict[Variable, str] = {}
        self._outer: list[tuple[Tape, bool]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def __enter__(self) -> "Tape":
        self._outer.append((_state.tape, _state.recording))
        _state.tape, _state.recording = self, True
        return self

    def __exit__(self, *_: object) -> None:
        _state.tape, _state.recording = self._outer.pop()

    def reset(self) -> None:
        """Drop all entries: variables recorded so far can no longer be differentiated or used."""
        self.entries.clear()
        self.backward_spans.clear()
        self.seen.clear()
        self._names.clear()
        self.generation = Generation(self)

    @property
    def num_bytes(self) -> int:
        """Bytes of all computed values that the tape keeps; a view adds nothing to its base."""
        memories = {
            output.value.untyped_storage().data_ptr(): output.value.untyped_storage().nbytes()
            for entry in self.entries
            for output in entry.outputs
        }
        given = {  # leaves and constants: values that were not computed on this tape
            value.untyped_storage().data_ptr()
            for entry in self.entries
            for operand, value in zip(entry.inputs, entry.values, strict=True)
            if isinstance(value, Tensor) and getattr(operand, "generation", None) is None
        }
        return sum(num_bytes for memory, num_bytes in memories.items() if memory not in given)

    def name_of(self, operand: Operand) -> str:
        """The name of an operand in a trace: its own, the next `v0, v1, …`, or the constant itself."""
        if type(operand) is Variable:
            if operand.name:
                return operand.name
            return self._names.setdefault(operand, f"v{len(self._names)}")
        return f"constant{tuple(operand.shape)}" if isinstance(operand, Tensor) else str(operand)


@final
class _State(threading.local):
    """The current tape of each thread: workers may be threads, and each has its own computation."""

    def __init__(self) -> None:
        self.tape = Tape()
        self.recording = True


_state = _State()


def current_tape() -> Tape:
    """The tape that records in this thread."""
    return _state.tape


@contextmanager
def no_record() -> Generator[None]:
    """Compute without recording: results are leaves, and no memory is kept.

    >>> with Tape() as tape, no_record():
    ...     _ = Variable(torch.ones(2)) * 3.0
    >>> len(tape)
    0
    """
    before = _state.recording
    _state.recording = False
    try:
        yield
    finally:
        _state.recording = before


def record(operation: Primitive, inputs: tuple[Operand, ...], attributes: dict[str, Any]) -> Any:
    """Compute an operation on variables and append it to the tape. No other code appends to a tape."""
    tape = _state.tape
    generation = tape.generation
    tracing = tape.tracing
    key = _key(operation, inputs, attributes) if tape.share and _state.recording else None
    if key in tape.seen:
        found = tape.seen[key]
        found.check_unchanged()
        return found.outputs[0] if len(found.outputs) == 1 else found.outputs
    values: list[Any] = []
    tensors: list[Tensor] = []
    dtype: torch.dtype | None = None
    for operand in inputs:
        value: Any = operand
        if type(operand) is Variable:
            if operand.generation is not None and operand.generation is not generation:
                home = operand.generation()
                raise foreign(operation.name, operand.shape, home is not None and home is not tape)
            value = operand.value
        elif isinstance(operand, int | float):
            values.append(float(operand))
            continue
        if tracing is not None:
            value = tracing.stand_in(operand)
        values.append(value)
        tensors.append(value)
        if value.dtype is not dtype and value.dtype.is_floating_point:
            if dtype is not None:
                raise mixed("dtype", operation.name, values)
            dtype = value.dtype
    try:
        result = operation.forward(*values, **attributes)
    except AutogradError:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as reason:
        raise failed(operation.name, values, attributes, reason) from reason

    results: tuple[Tensor, ...] = result if type(result) is tuple else (result,)
    if not _state.recording and tracing is None:
        leaves = tuple([Variable.unchecked(value) for value in results])
        return leaves if type(result) is tuple else leaves[0]
    index = len(tape.entries)
    outputs = tuple([Variable.unchecked(value, None, generation, index) for value in results])
    if tracing is None:
        tensors += results
    else:
        tensors = []
    versions = [tensor._version for tensor in tensors]
    entry = TapeEntry(operation, inputs, outputs, attributes, values, tensors, versions, call_site())
    tape.entries.append(entry)
    if key is not None:
        tape.seen[key] = entry
    if tape.trace:
        tape.write(entry.written(tape.name_of))
    return outputs if type(result) is tuple else outputs[0]


def _key(operation: Primitive, inputs: tuple[Operand, ...], attributes: dict[str, Any]) -> Any:
    """Equal for operations with equal results; the tape keeps the inputs alive, so their ids stay valid."""
    operands = tuple([o if isinstance(o, int | float) else ("id", id(o)) for o in inputs])
    return operation, operands, tuple(attributes.items())
