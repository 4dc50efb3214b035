"""Automatic differentiation of our own, over torch tensors: a dynamic tape and a static graph."""

from shoal.autograd import derived, ops
from shoal.autograd.check import gradient_check
from shoal.autograd.gradient import backward, grad
from shoal.autograd.tape import Tape, TapeEntry, current_tape, no_record
from shoal.autograd.variable import Variable

__all__ = [
    "Tape",
    "TapeEntry",
    "Variable",
    "backward",
    "current_tape",
    "derived",
    "grad",
    "gradient_check",
    "no_record",
    "ops",
]
