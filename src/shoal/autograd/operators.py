"""The operators and methods of :class:`Variable`, each an operation of `ops` or `derived`."""

import shoal.autograd.derived as derived
import shoal.autograd.ops as ops
from shoal.autograd.variable import Variable


def attach_operators() -> None:
    """Give `Variable` its operators; the package calls this once, when the operations exist."""
    Variable.__add__ = lambda self, other: ops.add(self, other)
    Variable.__radd__ = lambda self, other: ops.add(other, self)
    Variable.__sub__ = derived.sub
    Variable.__rsub__ = lambda self, other: derived.sub(other, self)
    Variable.__mul__ = lambda self, other: ops.mul(self, other)
    Variable.__rmul__ = lambda self, other: ops.mul(other, self)
    Variable.__truediv__ = derived.div
    Variable.__rtruediv__ = lambda self, other: derived.div(other, self)
    Variable.__matmul__ = derived.matmul
    Variable.__pow__ = derived.power
    Variable.__neg__ = lambda self: ops.neg(self)
    Variable.sum = derived.sum
    Variable.mean = derived.mean
    Variable.reshape = lambda self, *shape: ops.reshape(self, shape=shape)
    Variable.expand = lambda self, *shape: ops.expand(self, shape=shape)
    Variable.detach = lambda self: ops.detach(self)
