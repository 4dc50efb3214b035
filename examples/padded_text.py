"""Sums as text, padded to one length: samples of several tensors, and a loss that counts.

A sample is the text "12+7=19" in characters. The model predicts the digits after "="; the text before them, and the
padding after them, do not count. So samples differ in how many characters count, and so do the workers' shares of a
batch. The loss returns the sum and the count: training divides by the count of all workers, as one machine would.

    shoal train --data examples.padded_text:data --model examples.padded_text:Model --loss examples.padded_text:loss \
        --metrics examples.padded_text:right --strategy ddp --workers 2 --epochs 20 --lr 0.003
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

CHARACTERS = "0123456789+= "
LENGTH = len("99+99=198")
IGNORED = -100


def data(samples: int = 4000, largest: int = 99, seed: int = 0) -> dict[str, dict[str, Tensor]]:
    """The characters of each sum, and for each of them the next one to predict."""
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(largest + 1, (samples, 2), generator=draw).tolist()
    texts = [f"{a}+{b}={a + b}" for a, b in pairs]
    ids = torch.tensor([[CHARACTERS.index(each) for each in text.ljust(LENGTH)] for text in texts])
    labels = torch.full_like(ids, IGNORED)
    for row, text in enumerate(texts):
        labels[row, text.index("=") : len(text) - 1] = ids[row, text.index("=") + 1 : len(text)]
    held_out = samples // 10
    columns = {"input_ids": ids, "labels": labels}
    return {
        "train": {name: column[held_out:] for name, column in columns.items()},
        "test": {name: column[:held_out] for name, column in columns.items()},
    }


class Model(nn.Module):
    """A small decoder: each character attends to itself and those before it."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), width)
        self.positions = nn.Embedding(LENGTH, width)
        block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(CHARACTERS))

    def forward(self, input_ids: Tensor) -> Tensor:
        """Scores of every next character, [samples, length, characters]."""
        places = torch.arange(LENGTH, device=input_ids.device)
        hidden = self.characters(input_ids) + self.positions(places)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=hidden.device)
        return self.head(self.blocks(hidden, mask=mask, is_causal=True))


def loss(scores: Tensor, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The sum over the characters that count, and their number."""
    labels = batch["labels"]
    total = functional.cross_entropy(
        scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total, (labels != IGNORED).sum()


def right(scores: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Whether each sum is right in every digit."""
    labels = batch["labels"]
    return ((scores.argmax(-1) == labels) | (labels == IGNORED)).all(1)
