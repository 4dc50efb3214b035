"""Settings of the models and losses."""

from dataclasses import dataclass
from typing import Literal

from shoal.config.choices import Checked
from shoal.config.sections.values import Count, Custom, Fraction, Layers


@dataclass(frozen=True)
class LinearConfig(Checked):
    """One linear layer: softmax regression, or least squares."""

    name: Literal["linear"] = "linear"


@dataclass(frozen=True)
class MlpConfig(Checked):
    """Fully connected layers with ReLU between them."""

    name: Literal["mlp"] = "mlp"
    hidden: tuple[Count, ...] = (128, 64)
    """Widths of the hidden layers."""


@dataclass(frozen=True)
class LenetConfig(Checked):
    """The course's network: two convolutions with pooling, then two fully connected layers."""

    name: Literal["lenet"] = "lenet"


@dataclass(frozen=True)
class Resnet18Config(Checked):
    """ResNet-18 with a stem for small images: 3×3, no pooling."""

    name: Literal["resnet18"] = "resnet18"
    width: Count = 64
    """Channels of the first stage; 64 is the published network."""
    norm: Literal["batch", "group"] = "batch"
    """Normalisation: batch statistics depend on how the batch is divided among workers; group statistics do not."""


@dataclass(frozen=True)
class TransformerConfig(Checked):
    """A small decoder over bytes: each position attends to itself and those before it."""

    name: Literal["transformer"] = "transformer"
    layers: Layers = 2
    """Number of blocks, each of attention and feed-forward."""
    width: Count = 64
    """Width of the residual stream."""
    heads: Count = 4
    """Attention heads; the width must be a multiple of it."""


BuiltInModelConfig = LinearConfig | MlpConfig | LenetConfig | Resnet18Config | TransformerConfig
ModelConfig = BuiltInModelConfig | Custom


@dataclass(frozen=True)
class CrossEntropyConfig(Checked):
    """Negative log-likelihood of the correct label."""

    name: Literal["cross_entropy"] = "cross_entropy"
    smoothing: Fraction = 0.0
    """Label smoothing: probability moved from the correct label to all labels evenly."""


@dataclass(frozen=True)
class MseConfig(Checked):
    """Squared error; labels become one-hot targets."""

    name: Literal["mse"] = "mse"


@dataclass(frozen=True)
class MaeConfig(Checked):
    """Absolute error; labels become one-hot targets."""

    name: Literal["mae"] = "mae"


LossConfig = CrossEntropyConfig | MseConfig | MaeConfig | Custom
