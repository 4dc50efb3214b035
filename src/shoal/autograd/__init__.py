"""Automatic differentiation of our own, over torch tensors: a dynamic tape and a static graph."""

from shoal.autograd import derived, nn, ops
from shoal.autograd.derived import attach_operators
from shoal.autograd.gradient import backward, grad, gradient_check
from shoal.autograd.static import compile  # noqa: A004 (what it does, in the field's word)
from shoal.autograd.tape import Tape, TapeEntry, current_tape, no_record
from shoal.autograd.variable import Variable

attach_operators()

__all__ = [
    "Tape",
    "TapeEntry",
    "Variable",
    "backward",
    "compile",
    "current_tape",
    "derived",
    "grad",
    "gradient_check",
    "nn",
    "no_record",
    "ops",
]
