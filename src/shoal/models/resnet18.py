"""ResNet-18 with the stem for small pictures: one 3×3 convolution, no pooling before the stages."""

from collections.abc import Callable
from typing import Literal, final

from torch import Tensor, nn
from torch.nn import functional as F

from shoal.models.common import picture_shape

Norm = Literal["batch", "group"]


def group_norm(channels: int) -> nn.GroupNorm:
    """Group normalisation with at least two channels in each group, and at most the usual 32 groups.

    A group of one channel would be normalised to zero when a stage has shrunk the picture to one pixel.

    >>> group_norm(64).num_groups, group_norm(8).num_groups, group_norm(3).num_groups
    (32, 4, 1)
    """
    groups = next((groups for groups in (32, 16, 8, 4, 2) if channels % (2 * groups) == 0), 1)
    return nn.GroupNorm(groups, channels)


NORMS: dict[Norm, Callable[[int], nn.Module]] = {"batch": nn.BatchNorm2d, "group": group_norm}


def _convolution(channels_in: int, channels_out: int, size: int, stride: int) -> nn.Conv2d:
    # No bias: the normalisation that follows would subtract it and has one of its own.
    return nn.Conv2d(channels_in, channels_out, size, stride=stride, padding=size // 2, bias=False)


@final
class Shortcut(nn.Module):
    """The shortcut of a block that changes the shape: a 1×1 convolution and its normalisation."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv = _convolution(channels_in, channels_out, 1, stride)
        self.norm = NORMS[norm](channels_out)

    def forward(self, x: Tensor) -> Tensor:
        """The input in the block's output shape."""
        return self.norm(self.conv(x))


@final
class Block(nn.Module):
    """y = relu(f(x) + x), where f is two 3×3 convolutions: a block learns a residual."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _convolution(channels_in, channels_out, 3, stride)
        self.norm1 = NORMS[norm](channels_out)
        self.conv2 = _convolution(channels_out, channels_out, 3, 1)
        self.norm2 = NORMS[norm](channels_out)
        same_shape = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if same_shape else Shortcut(channels_in, channels_out, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


@final
class MeanOverPixels(nn.Module):
    """[N, channels, height, width] → [N, channels]."""

    def forward(self, x: Tensor) -> Tensor:
        """The mean of each channel."""
        return x.mean(dim=(2, 3))


@final
class Resnet18(nn.Module):
    """Stem, four stages of two blocks, mean over the pixels, one linear layer: 18 layers with weights."""

    def __init__(self, channels: int, outputs: int, width: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = _convolution(channels, width, 3, 1)
        self.norm1 = NORMS[norm](width)
        self.stage1 = _stage(width, width, 1, norm)
        self.stage2 = _stage(width, 2 * width, 2, norm)
        self.stage3 = _stage(2 * width, 4 * width, 2, norm)
        self.stage4 = _stage(4 * width, 8 * width, 2, norm)
        self.fc = nn.Linear(8 * width, outputs)

    def forward(self, pictures: Tensor) -> Tensor:
        """[N, channels, height, width] → [N, outputs]."""
        x = F.relu(self.norm1(self.conv1(pictures)))
        x = self.stage4(self.stage3(self.stage2(self.stage1(x))))
        return self.fc(x.mean(dim=(2, 3)))

    def as_sequence(self) -> list[tuple[str, nn.Module]]:
        """The layers whose composition is `forward`; a block, which its shortcut spans, is one of them."""
        stages = {"stage1": self.stage1, "stage2": self.stage2, "stage3": self.stage3, "stage4": self.stage4}
        return [
            ("conv1", self.conv1),
            ("norm1", nn.Sequential(self.norm1, nn.ReLU())),
            *(
                (f"{name}.{key}", block)
                for name, stage in stages.items()
                for key, block in stage.named_children()
            ),
            ("fc", nn.Sequential(MeanOverPixels(), self.fc)),
        ]


def _stage(channels_in: int, channels_out: int, stride: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        Block(channels_in, channels_out, stride, norm), Block(channels_out, channels_out, 1, norm)
    )


def resnet18(
    input_shape: tuple[int, ...] = (3, 32, 32), outputs: int = 10, width: int = 64, norm: Norm = "batch"
) -> Resnet18:
    """ResNet-18 for pictures of any size; `width` scales every stage, 64 is the published network.

    11,173,962 parameters in 62 tensors at width 64 and ten outputs. With `norm="batch"` a worker normalises by the
    statistics of its own share, so several workers do not compute the same as one machine; `norm="group"` does not
    depend on the batch.

    >>> import torch
    >>> resnet18(width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels, _, _ = picture_shape("resnet18", input_shape)
    return Resnet18(channels, outputs, width, norm)
