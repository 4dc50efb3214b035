"""Embeddings and attention that the workers of a group compute together.

An embedding is a table E of shape [words, width]: row t is the vector of token t::

    row: by words                                 column: by width; gather: and gathered

    ┌──────────────┐                              ┌───────┬───────┐
    │      E₀      │ words 0 … V/2 − 1            │  E₀   │  E₁   │   y = [E₀[t]  E₁[t]]
    ├──────────────┤                              │       │       │
    │      E₁      │ words V/2 … V − 1            └───────┴───────┘
    └──────────────┘   y = Σᵣ (Eᵣ[t] if worker r has t, else 0)

Attention is divided by heads. Each head attends by itself, so a worker with some heads needs nothing from the others
until the output projection, which sums over heads::

              heads of worker 0 │ heads of worker 1
    Q = x·[   Wq₀               │ Wq₁   ]ᵀ
    K = x·[   Wk₀               │ Wk₁   ]ᵀ           one matrix `qkv`, whose rows are Wq, Wk and Wv:
    V = x·[   Wv₀               │ Wv₁   ]ᵀ           a worker has its rows of each of the three blocks (`Place.blocks`)
    y = softmax(Q₀·K₀ᵀ/√d)·V₀·Wo₀ᵀ + softmax(Q₁·K₁ᵀ/√d)·V₁·Wo₁ᵀ + bo

So `qkv` is a column layer of three blocks and `out` a row layer: one all-reduce of [samples, length, width] forward and
one backward. Dropout would have to be `divided`; ours has none.
"""

from typing import Any, ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.strategies.tensor.linear import ColumnLinear, RowLinear
from shoal.strategies.tensor.parts import Cut, check_divides, gather_from, part_of, sum_over


class _DividedEmbedding(nn.Module):
    """This worker's part of the table. The vector of `padding_idx` gets no gradient, on the worker that has it."""

    cuts: ClassVar[dict[str, Cut]]

    def __init__(self, whole: nn.Embedding, group: Group, name: str) -> None:
        super().__init__()
        if whole.max_norm is not None or whole.sparse or whole.scale_grad_by_freq:
            raise ConfigError(
                f"cannot divide {name}: an embedding with max_norm, sparse or scale_grad_by_freq",
                f"Leave {name} out of the plan.",
            )
        if self.cuts["weight"].dim == 0:
            check_divides(name, whole.num_embeddings, "words", group)
        else:
            check_divides(name, whole.embedding_dim, "columns", group)
        self.num_embeddings, self.embedding_dim = whole.num_embeddings, whole.embedding_dim
        self.padding_idx = whole.padding_idx
        self.weight = part_of(whole.weight, self.cuts["weight"], group)
        self._group = group


@final
class RowEmbedding(_DividedEmbedding):
    """This worker's words of an embedding: it contributes zero for the others' words.

    The table is divided. Sends [samples, width] forward and nothing backward.
    """

    cuts: ClassVar = {"weight": Cut(0)}

    def forward(self, tokens: Tensor) -> Tensor:
        """[…] → […, width]."""
        assert self.weight is not None
        words = len(self.weight)
        first = self._group.rank * words
        local = tokens - first
        is_mine = (local >= 0) & (local < words)
        padding = None if self.padding_idx is None else self.padding_idx - first
        if padding is not None and not 0 <= padding < words:
            padding = None
        found = F.embedding(local.where(is_mine, 0), self.weight, padding)
        return sum_over(found * is_mine.unsqueeze(-1), self._group)


@final
class ColumnEmbedding(_DividedEmbedding):
    """This worker's columns of an embedding.

    The table is divided. Sends nothing: the output stays divided for a row layer. With `gathers`, the output is
    gathered: that sends [samples, width / workers] forward and nothing backward.
    """

    cuts: ClassVar = {"weight": Cut(1)}

    def __init__(self, whole: nn.Embedding, group: Group, name: str, gathers: bool = False) -> None:
        super().__init__(whole, group, name)
        self.gathers = gathers

    def forward(self, tokens: Tensor) -> Tensor:
        """[…] → […, width / workers], or […, width] if they are gathered."""
        assert self.weight is not None
        part = F.embedding(tokens, self.weight, self.padding_idx)
        return gather_from(part, self._group) if self.gathers else part


BLOCKS = 3
"""Query, key and value."""
ATTENTION_CUTS = {"qkv.weight": Cut(0, BLOCKS), "qkv.bias": Cut(0, BLOCKS), "out.weight": Cut(1)}


def divided_attention(whole: Any, group: Group, name: str) -> nn.Module:
    """The attention with this worker's heads, changed in place."""
    check_divides(name, whole.heads, "heads", group)
    whole.qkv = ColumnLinear(whole.qkv, group, f"{name}.qkv", BLOCKS)
    whole.out = RowLinear(whole.out, group, f"{name}.out")
    whole.heads //= group.size
    whole.cuts = ATTENTION_CUTS
    return whole
