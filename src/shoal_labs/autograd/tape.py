"""The names that the course's own tape program uses: a program runs after `from shoal_labs.autograd.tape import …`.

`shoal.autograd` is the engine to compute with; this tape has four operations and prints each of them.
"""

from shoal_labs.autograd.solution.tape import (
    TapeEntry,
    Variable,
    fresh_name,
    grad,
    gradient_tape,
    operator_add,
    operator_expand,
    operator_mul,
    operator_sum,
    reset_tape,
)

__all__ = [
    "TapeEntry",
    "Variable",
    "fresh_name",
    "grad",
    "gradient_tape",
    "operator_add",
    "operator_expand",
    "operator_mul",
    "operator_sum",
    "reset_tape",
]
