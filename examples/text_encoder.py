"""Torch's own transformer, divided among workers: attention by heads, words, and the features between.

    shoal train --model examples.text_encoder:model --data synthetic --data.task text --strategy tensor --workers 2 \\
        --tensor.plan examples/text_encoder.toml

The plan `examples/text_encoder.toml` names each layer's cut. Without it, shoal finds the layers of the encoder by
itself, and leaves embeddings and head whole. The losses are those of `--strategy single`, also with dropout.
"""

import torch
from torch import Tensor, nn


class TextEncoder(nn.Module):
    """Each position sees itself and the ones before it, and predicts the next byte."""

    def __init__(self, length: int, width: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, width)
        self.positions = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 256)

    def forward(self, text: Tensor) -> Tensor:
        """Bytes [N, length] → scores [N, length, 256]."""
        place = torch.arange(text.shape[1], device=text.device)
        later = place[:, None] < place  # what a position does not see
        x = self.tokens(text.long()) + self.positions(place)
        return self.head(self.encoder(x, mask=later, is_causal=True))


def model(
    length: int = 64, width: int = 64, heads: int = 4, layers: int = 2, dropout: float = 0.1
) -> nn.Module:
    """A model for texts of `length` bytes."""
    return TextEncoder(length, width, heads, layers, dropout)
