"""The networks that tests shrink, each with inputs for it."""

import torch
from torch import nn

from shoal.models.lenet import lenet
from shoal.models.mlp import mlp
from shoal.models.resnet18 import resnet18
from shoal.models.transformer import transformer


def users_own():
    """Layers of torch in an order of the user's: one activation is used twice, and does not keep zero."""
    sigmoid = nn.Sigmoid()
    features = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), sigmoid, nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.GroupNorm(4, 8)
    )  # fmt: skip
    return nn.Sequential(
        features, nn.Conv2d(8, 6, 1), nn.AvgPool2d(2), nn.Flatten(), nn.BatchNorm1d(96), sigmoid, nn.Linear(96, 5)
    )  # fmt: skip


def networks():
    """(model, inputs) by name, with weights, norms and statistics drawn from a seed."""
    draw = torch.Generator().manual_seed(0)
    pictures = torch.randn(3, 1, 28, 28, generator=draw)
    colours = torch.randn(2, 3, 16, 16, generator=draw)
    made = {
        "lenet": (lenet(), pictures),
        "mlp": (mlp(hidden=(12, 8)), pictures),
        "resnet18": (resnet18((3, 16, 16), width=4), colours),
        "resnet18, group norm": (resnet18((3, 16, 16), width=8, norm="group"), colours),
        "transformer": (
            transformer(width=16, heads=4),
            torch.randint(256, (2, 64), generator=draw, dtype=torch.uint8),
        ),
        "user's own": (users_own(), pictures[:, :, :12, :12].contiguous()),
    }
    for model, _ in made.values():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                with torch.no_grad():
                    tensor.copy_(torch.rand(tensor.shape, generator=draw) * 0.5 + 0.1)
                    tensor *= (
                        torch.randint(2, tensor.shape, generator=draw) * 2 - 1 if tensor.dim() > 1 else 1
                    )
    return made
