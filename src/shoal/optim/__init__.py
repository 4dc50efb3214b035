"""Optimizers: the rules that compute new parameters from gradients.

Each has a readable step, which is its definition, and a fast one on torch's fused kernels, tested to be equal.
"""

from shoal.optim.adam import Adam, AdamW
from shoal.optim.build import build
from shoal.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "build"]
