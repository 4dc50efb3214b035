"""Attention that the workers of a group compute together, by heads.

Each head attends by itself, so a worker with some heads needs nothing from the others until the output projection,
which sums over heads::

              heads of worker 0 │ heads of worker 1
    Q = x·[   Wq₀               │ Wq₁   ]ᵀ
    K = x·[   Wk₀               │ Wk₁   ]ᵀ           one matrix `qkv`, whose rows are Wq, Wk and Wv:
    V = x·[   Wv₀               │ Wv₁   ]ᵀ           a worker has its rows of each of the three blocks (`Place.blocks`)
    y = softmax(Q₀·K₀ᵀ/√d)·V₀·Wo₀ᵀ + softmax(Q₁·K₁ᵀ/√d)·V₁·Wo₁ᵀ + bo

So `qkv` is a column layer of three blocks and `out` a row layer: one all-reduce of [samples, length, width] forward and
one backward. Dropout would have to be `divided`; ours has none.
"""

from torch import nn

from shoal.comm.group import Group
from shoal.models.transformer import Attention
from shoal.strategies.tensor.linear import ColumnLinear, RowLinear
from shoal.strategies.tensor.parts import Cut, check_divides

BLOCKS = 3
"""Query, key and value."""
CUTS = {"qkv.weight": Cut(0, BLOCKS), "qkv.bias": Cut(0, BLOCKS), "out.weight": Cut(1)}


def divided_attention(whole: Attention, group: Group, name: str) -> nn.Module:
    """The attention with this worker's heads, changed in place."""
    check_divides(name, whole.heads, "heads", group)
    whole.qkv = ColumnLinear(whole.qkv, group, f"{name}.qkv", BLOCKS)  # pyright: ignore[reportAttributeAccessIssue]
    whole.out = RowLinear(whole.out, group, f"{name}.out")  # pyright: ignore[reportAttributeAccessIssue]
    whole.heads //= group.size
    return whole
