"""The four operations as a student's tape would record them, for checks of one task that must not need the others."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor


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
