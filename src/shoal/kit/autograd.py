"""Automatic differentiation: the tape, the static graph, drawings."""

from shoal.autograd import Tape, TapeEntry, Variable, drawing, grad, gradient_check, nn, no_record, ops
from shoal.autograd import compile as compile_graph
from shoal.autograd.batch_gradients import BatchGradients, StaticGradients, static_gradients, tape_gradients
from shoal.autograd.drawn_examples import example
from shoal.autograd.static import Stage, StaticPlan

__all__ = [
    "BatchGradients",
    "Stage",
    "StaticGradients",
    "StaticPlan",
    "Tape",
    "TapeEntry",
    "Variable",
    "compile_graph",
    "drawing",
    "example",
    "grad",
    "gradient_check",
    "nn",
    "no_record",
    "ops",
    "static_gradients",
    "tape_gradients",
]
