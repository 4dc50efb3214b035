"""The two networks of the course, as torch modules with weights from a seed."""

from collections import OrderedDict

import torch
from torch import nn


def mlp(
    seed: int = 0, dtype: torch.dtype = torch.float64, widths: tuple[int, ...] = (784, 128, 64, 10)
) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for number in range(1, len(widths)):
        layers[f"fc{number}"] = nn.Linear(widths[number - 1], widths[number])
        if number < len(widths) - 1:
            layers[f"relu{number}"] = nn.ReLU()
    return filled(nn.Sequential(layers).to(dtype), seed)


def lenet(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    network = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 6, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(400, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, 10),
        )
    )
    return filled(network.to(dtype), seed)


def filled(network: nn.Sequential, seed: int) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in network.parameters():
            bound = param[0].numel() ** -0.5
            param.uniform_(-bound, bound, generator=generator)
    return network


def batch(
    samples: int, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.rand(samples, 1, 28, 28, generator=generator, dtype=dtype),
        torch.randint(0, 10, (samples,), generator=generator),
    )
