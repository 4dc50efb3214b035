"""An ordinary module in stages: a pipeline begins one at a module's name, and nothing else is declared.

    shoal train --model examples.residual_blocks:model --data synthetic --data.shape 1,16,16 --strategy pipeline \\
        --workers 2 --pipeline.cut blocks.3

The forward pass is observed once on a few samples. A stage may begin at any module whose input is what the module
before it returned: here embed, blocks.0 to blocks.5, norm and head. Inside a block the data takes two ways, so a block
is in one stage. Several cuts, `--pipeline.cut blocks.2,blocks.4`, make more stages; with `--strategy single` the losses
are the same, and so are the names of the weights.
"""

from torch import Tensor, nn


class Block(nn.Module):
    """x + two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[N, width] → [N, width]."""
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm(x))))


class ResidualBlocks(nn.Module):
    """Pictures as vectors, through blocks, to classes."""

    def __init__(self, inputs: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.embed = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        """[N, channels, height, width] → [N, classes]."""
        x = self.embed(self.flatten(pictures))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def model(side: int = 16, width: int = 64, depth: int = 6, classes: int = 10) -> nn.Module:
    """A model for pictures of `side` × `side`."""
    return ResidualBlocks(side * side, width, depth, classes)
