"""Fully connected layers with ReLU between, or a single one."""

import itertools
import math
from collections import OrderedDict

from torch import nn


def mlp(
    input_shape: tuple[int, ...] = (1, 28, 28), outputs: int = 10, hidden: tuple[int, ...] = (128, 64)
) -> nn.Sequential:
    """fc1, ReLU, fc2, ReLU, …, the last layer without ReLU; 784-128-64-10 by default.

    >>> print([name for name, _ in mlp().named_children()])
    ['flatten', 'fc1', 'relu1', 'fc2', 'relu2', 'fc3']
    """
    widths = [math.prod(input_shape), *hidden, outputs]
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for number, (width_in, width_out) in enumerate(itertools.pairwise(widths), start=1):
        layers[f"fc{number}"] = nn.Linear(width_in, width_out)
        if number <= len(hidden):
            layers[f"relu{number}"] = nn.ReLU()
    return nn.Sequential(layers)


def linear(input_shape: tuple[int, ...] = (1, 28, 28), outputs: int = 10) -> nn.Sequential:
    """y = W·x + b on the flattened input.

    >>> linear()
    Sequential(
      (flatten): Flatten(start_dim=1, end_dim=-1)
      (fc1): Linear(in_features=784, out_features=10, bias=True)
    )
    """
    return mlp(input_shape, outputs, hidden=())
