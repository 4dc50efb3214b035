"""How gradients become new weights, and how the learning rate changes."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.kinds import AtLeast, Checked
from shoal.config.sections.values import Count, Custom, Fraction, NonNegative, PositiveFloat
from shoal.errors import ConfigError


@dataclass(frozen=True)
class GdConfig(Checked):
    """Gradient descent: the rule of plain SGD on the gradient of the whole training set."""

    name: Literal["gd"] = "gd"
    lr: PositiveFloat = 0.5
    """Learning rate η."""
    fast: bool = True
    """Update with torch's fused kernels; false runs the readable step, which defines the result."""


@dataclass(frozen=True)
class SgdConfig(Checked):
    """Stochastic gradient descent, with momentum if asked."""

    name: Literal["sgd"] = "sgd"
    lr: PositiveFloat = 0.1
    """Learning rate η."""
    momentum: Fraction = 0.0
    """μ: how much of the previous step is kept."""
    nesterov: bool = False
    """Look ahead along the momentum (needs momentum)."""
    weight_decay: NonNegative = 0.0
    """λ: added to the gradient as λ·θ."""
    fast: bool = True
    """Update with torch's fused kernels; false runs the readable step, which defines the result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise ConfigError(
                "optimizer.nesterov looks ahead along the momentum, and optimizer.momentum is 0",
                "Set --optimizer.momentum 0.9, or leave nesterov out.",
            )


@dataclass(frozen=True)
class AdamConfig(Checked):
    """Steps scaled by running estimates of the gradient's first and second moment."""

    name: Literal["adam"] = "adam"
    lr: PositiveFloat = 1e-3
    """Learning rate η."""
    beta1: Fraction = 0.9
    """How much of the first moment is kept."""
    beta2: Fraction = 0.999
    """How much of the second moment is kept."""
    eps: PositiveFloat = 1e-8
    """ε: keeps the division finite."""
    weight_decay: NonNegative = 0.0
    """λ: added to the gradient as λ·θ."""
    fast: bool = True
    """Update with torch's fused kernels; false runs the readable step, which defines the result."""


@dataclass(frozen=True)
class AdamWConfig(Checked):
    """Adam with the weight decay taken from the weights and not through the gradient."""

    name: Literal["adamw"] = "adamw"
    lr: PositiveFloat = 1e-3
    """Learning rate η."""
    beta1: Fraction = 0.9
    """How much of the first moment is kept."""
    beta2: Fraction = 0.999
    """How much of the second moment is kept."""
    eps: PositiveFloat = 1e-8
    """ε: keeps the division finite."""
    weight_decay: NonNegative = 0.01
    """λ: the weights shrink by η·λ in every step."""
    fast: bool = True
    """Update with torch's fused kernels; false runs the readable step, which defines the result."""


OptimizerConfig = GdConfig | SgdConfig | AdamConfig | AdamWConfig | Custom


@dataclass(frozen=True)
class ConstantConfig(Checked):
    """The learning rate stays as it is."""

    name: Literal["constant"] = "constant"
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps in which the rate rises linearly from 0."""


@dataclass(frozen=True)
class StepDecayConfig(Checked):
    """The learning rate is multiplied by a factor at regular intervals."""

    name: Literal["step"] = "step"
    every: Count = 1000
    """Steps between two decays."""
    factor: PositiveFloat = 0.1
    """What the rate is multiplied by."""
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps in which the rate rises linearly from 0."""


@dataclass(frozen=True)
class CosineConfig(Checked):
    """The learning rate falls along half a cosine to a floor at the last step."""

    name: Literal["cosine"] = "cosine"
    floor: Fraction = 0.0
    """What is left at the end, as a part of the full rate."""
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps in which the rate rises linearly from 0."""


ScheduleConfig = ConstantConfig | StepDecayConfig | CosineConfig
