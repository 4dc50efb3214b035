"""A two-tower model, divided by function: each of two workers computes one tower, both at the same time.

The user tower reads the upper half of a sample, the item tower the lower half; a last layer joins what they found. The
plan `examples/two_towers.toml` gives each tower to a worker, and leaves the last layer on both:

    shoal train --model examples.two_towers:model --data synthetic --data.shape 1,16,16 --strategy tensor --workers 2 \\
        --tensor.plan examples/two_towers.toml

The result is that of `--strategy single`: the same additions in the same order.
"""

import torch
from torch import Tensor, nn


def tower(inputs: int, width: int) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    )


class TwoTowers(nn.Module):
    """scores = join(user tower, item tower)."""

    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.user_tower = tower(inputs, width)
        self.item_tower = tower(inputs, width)
        self.join = nn.Linear(2 * width, classes)

    def forward(self, samples: Tensor) -> Tensor:
        """[N, channels, height, width] → [N, classes]."""
        user, item = samples.chunk(2, dim=2)
        return self.join(torch.cat([self.user_tower(user), self.item_tower(item)], dim=-1))


def model(side: int = 16, width: int = 128, classes: int = 10) -> nn.Module:
    """Two towers for pictures of `side` × `side`."""
    return TwoTowers(side * side // 2, width, classes)
