"""The course's network: two convolutions with pooling, two fully connected layers."""

from collections import OrderedDict

from torch import nn

from shoal.errors import ConfigError
from shoal.models.common import picture_shape, times

SMALLEST_SIDE = 12  # pixels: 12 → pool → 6 → convolution → 2 → pool → 1


def lenet(input_shape: tuple[int, ...] = (1, 28, 28), outputs: int = 10) -> nn.Sequential:
    """Two convolutions that detect strokes, pooling that makes them independent of position, two linear layers.

    For a 28×28 picture: 6×28×28, pooled to 6×14×14, 16×10×10, pooled to 16×5×5 = 400, then 120, then
    `outputs`. 51,902 parameters; nine tenths of them are in `fc1`.

    >>> import torch
    >>> lenet()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    channels, height, width = picture_shape("lenet", input_shape)
    if min(height, width) < SMALLEST_SIDE:
        raise ConfigError(
            f"lenet pools a {times((height, width))} picture away to nothing: it needs at least "
            f"{times((SMALLEST_SIDE, SMALLEST_SIDE))} pixels",
            "Use larger pictures, or --model mlp.",
        )
    # The first convolution is padded and keeps the size; pooling halves it; the second takes off two pixels
    # on each side.
    rows, columns = (((side // 2) - 4) // 2 for side in (height, width))
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(channels, 6, kernel_size=5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, kernel_size=5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(16 * rows * columns, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, outputs),
        )
    )
