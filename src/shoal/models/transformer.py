"""A small decoder over bytes: each position sees itself and the ones before it, and predicts the next."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.errors import ConfigError
from shoal.models.common import times

BYTES = 256  # the vocabulary: no tokenizer, and any file is text


@final
class Attention(nn.Module):
    """softmax(Q·Kᵀ / √d + mask)·V in several heads; the mask hides later positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[N, length, width] → [N, length, width]."""
        # [N, length, 3·width] → three of [N, heads, length, width / heads]
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(2))


@final
class Block(nn.Module):
    """x + attention(norm(x)), then x + feed-forward(norm(x)); the residual stream is never normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[N, length, width] → [N, length, width]."""
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


@final
class Embed(nn.Module):
    """Token embeddings plus position embeddings: the first layer of a transformer."""

    def __init__(self, tokens: nn.Embedding, positions: nn.Embedding) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions

    def forward(self, text: Tensor) -> Tensor:
        """Bytes [N, length] of any integer type → [N, length, width]."""
        # Called as layers: a strategy that gathers parameters for the layers that are called finds both.
        return self.tokens(text.long()) + self.positions(torch.arange(text.shape[1], device=text.device))


@final
class Transformer(nn.Module):
    """Token and position embeddings, pre-norm blocks, a last norm, one linear layer to the scores."""

    def __init__(self, length: int, outputs: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(BYTES, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)

    def forward(self, text: Tensor) -> Tensor:
        """Bytes [N, length] of any integer type → scores [N, length, outputs]; shorter texts are allowed."""
        x = self.tokens(text.long()) + self.positions(torch.arange(text.shape[1], device=text.device))
        return self.head(self.norm(self.blocks(x)))

    def as_sequence(self) -> list[tuple[str, nn.Module]]:
        """The layers whose composition is `forward`; they share this model's parameters."""
        blocks = [(f"blocks.{name}", block) for name, block in self.blocks.named_children()]
        embed = Embed(self.tokens, self.positions)
        return [("embed", embed), *blocks, ("norm", self.norm), ("head", self.head)]


def transformer(
    input_shape: tuple[int, ...] = (64,),
    outputs: int = BYTES,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
) -> Transformer:
    """A causal decoder for texts of up to `input_shape[0]` bytes, without dropout.

    Multiplications of a block: 12·length·width² for its matrices, 2·length²·width for the attention.

    >>> import torch
    >>> transformer()(torch.zeros(2, 64, dtype=torch.uint8)).shape
    torch.Size([2, 64, 256])
    """
    if len(input_shape) != 1:
        raise ConfigError(
            f"transformer reads bytes, one row per sample, but the data's inputs are {times(input_shape)}",
            "Use --data synthetic --data.task text, or another model.",
        )
    if width % heads != 0:
        divisors = [str(count) for count in range(1, min(width, 64) + 1) if width % count == 0]
        raise ConfigError(
            f"model.width ({width}) is not a multiple of model.heads ({heads})",
            f"The heads share the width evenly: with width {width}, heads can be {', '.join(divisors)}.",
        )
    return Transformer(input_shape[0], outputs, layers, width, heads)
