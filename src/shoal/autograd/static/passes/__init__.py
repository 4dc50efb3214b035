"""Optimisation passes: each takes a graph and returns an equivalent one that costs less.

They run in the order of `PASSES`. Each function's docstring says whether its results are equal to the last bit.
"""

from collections.abc import Callable

from shoal.autograd.static.graph import Graph
from shoal.autograd.static.passes.chains import order_matmul_chains
from shoal.autograd.static.passes.fold import fold_constants
from shoal.autograd.static.passes.fuse import fuse
from shoal.autograd.static.passes.share import drop_dead_code, share_common

PASSES: dict[str, Callable[[Graph], Graph]] = {
    "constant folding": fold_constants,
    "common subexpressions": share_common,
    "order of matmul chains": order_matmul_chains,
    "dead code": drop_dead_code,
    "fusion": fuse,
}
