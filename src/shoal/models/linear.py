"""One linear layer: softmax regression under cross entropy, least squares under mse."""

import math
from collections import OrderedDict

from torch import nn


def linear(input_shape: tuple[int, ...] = (1, 28, 28), outputs: int = 10) -> nn.Sequential:
    """y = W·x + b on the flattened input.

    >>> linear()
    Sequential(
      (flatten): Flatten(start_dim=1, end_dim=-1)
      (fc1): Linear(in_features=784, out_features=10, bias=True)
    )
    """
    return nn.Sequential(
        OrderedDict[str, nn.Module](flatten=nn.Flatten(), fc1=nn.Linear(math.prod(input_shape), outputs))
    )
