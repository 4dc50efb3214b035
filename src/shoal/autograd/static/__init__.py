"""The static graph: a function is traced once, optimised, given memory, and compiled to one Python function.

::

    graph     what a function computes, traced on placeholders
    passes    optimisation passes over a graph; matmul_order: one of them
    memory    where each value of a graph is stored
    emit      the graph as Python source
    compiler  `compile`: all of these in order, once for each set of input shapes
"""

from shoal.autograd.static.compiler import Compiled, Stage, StaticPlan, compile  # noqa: A004 (the field's word)

__all__ = ["Compiled", "Stage", "StaticPlan", "compile"]
