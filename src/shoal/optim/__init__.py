"""Optimizers: the rule that turns gradients into new parameters.

Each has a readable step, which is its definition, and a fast one on torch's fused kernels, proved equal to it.
"""

from shoal.optim.adam import Adam, AdamW
from shoal.optim.build import build
from shoal.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "build"]
