"""Embeddings that the workers of a group look up together.

A table E of shape [words, width]: row t is the vector of token t::

    row: by words                                 gather: by width

    ┌──────────────┐                              ┌───────┬───────┐
    │      E₀      │ words 0 … V/2 − 1            │  E₀   │  E₁   │   y = [E₀[t]  E₁[t]]
    ├──────────────┤                              │       │       │
    │      E₁      │ words V/2 … V − 1            └───────┴───────┘
    └──────────────┘   y = Σᵣ (Eᵣ[t] if worker r has t, else 0)
"""

from typing import ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.strategies.tensor.collectives import gather_from, sum_over
from shoal.strategies.tensor.parts import Cut, check_divides, part_of


def _check_plain(whole: nn.Embedding, name: str) -> None:
    if (
        whole.max_norm is not None
        or whole.sparse
        or whole.scale_grad_by_freq
        or whole.padding_idx is not None
    ):
        raise ConfigError(
            f"cannot divide {name}: an embedding with padding_idx, max_norm, sparse or scale_grad_by_freq",
            f"Leave {name} out of the plan.",
        )


class _DividedEmbedding(nn.Module):
    """This worker's part of the table."""

    cuts: ClassVar[dict[str, Cut]]

    def __init__(self, whole: nn.Embedding, group: Group) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = whole.num_embeddings, whole.embedding_dim
        self.weight = part_of(whole.weight, self.cuts["weight"], group)
        self._group = group


@final
class RowEmbedding(_DividedEmbedding):
    """This worker's words of an embedding: it contributes zero for the others' words.

    The table is divided. Sends [samples, width] forward and nothing backward.
    """

    cuts: ClassVar = {"weight": Cut(0)}

    def __init__(self, whole: nn.Embedding, group: Group, name: str) -> None:
        _check_plain(whole, name)
        check_divides(name, whole.num_embeddings, "words", group)
        super().__init__(whole, group)

    def forward(self, tokens: Tensor) -> Tensor:
        """[…] → […, width]."""
        assert self.weight is not None
        words = len(self.weight)
        local = tokens - self._group.rank * words
        is_mine = (local >= 0) & (local < words)
        found = F.embedding(local.where(is_mine, 0), self.weight)
        return sum_over(found * is_mine.unsqueeze(-1), self._group)


@final
class GatheredEmbedding(_DividedEmbedding):
    """This worker's columns of an embedding, gathered.

    The table is divided. Sends [samples, width / workers] forward and nothing backward.
    """

    cuts: ClassVar = {"weight": Cut(1)}

    def __init__(self, whole: nn.Embedding, group: Group, name: str) -> None:
        _check_plain(whole, name)
        check_divides(name, whole.embedding_dim, "columns", group)
        super().__init__(whole, group)

    def forward(self, tokens: Tensor) -> Tensor:
        """[…] → […, width]."""
        assert self.weight is not None
        return gather_from(F.embedding(tokens, self.weight), self._group)
