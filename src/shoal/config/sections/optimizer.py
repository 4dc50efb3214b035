"""Settings of the optimizers and learning-rate schedules."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.choices import Checked
from shoal.config.kinds import AtLeast
from shoal.config.sections.values import Count, Custom, Fraction, NonNegative, PositiveFloat
from shoal.errors import ConfigError


@dataclass(frozen=True)
class GdConfig(Checked):
    """Gradient descent on the whole training set: SGD with a batch of all samples."""

    name: Literal["gd"] = "gd"
    lr: PositiveFloat = 0.5
    """Learning rate η."""
    fast: bool = True
    """Update with torch's fused kernels; false: with the readable step that defines the result."""


@dataclass(frozen=True)
class SgdConfig(Checked):
    """Stochastic gradient descent, optionally with momentum."""

    name: Literal["sgd"] = "sgd"
    lr: PositiveFloat = 0.1
    """Learning rate η."""
    momentum: Fraction = 0.0
    """Momentum μ: the fraction of the previous step that is kept."""
    nesterov: bool = False
    """Nesterov momentum; requires momentum > 0."""
    weight_decay: NonNegative = 0.0
    """Weight decay λ: adds λ·θ to the gradient."""
    fast: bool = True
    """Update with torch's fused kernels; false: with the readable step that defines the result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise ConfigError(
                "optimizer.nesterov requires momentum, but optimizer.momentum is 0",
                "Set --optimizer.momentum 0.9, or remove --optimizer.nesterov.",
            )


@dataclass(frozen=True)
class _Adaptive(Checked):
    """The settings that adam and adamw share."""

    name: str = ""
    lr: PositiveFloat = 1e-3
    """Learning rate η."""
    beta1: Fraction = 0.9
    """Decay rate of the first moment."""
    beta2: Fraction = 0.999
    """Decay rate of the second moment."""
    eps: PositiveFloat = 1e-8
    """ε, added to the denominator."""
    weight_decay: NonNegative = 0.0
    fast: bool = True
    """Update with torch's fused kernels; false: with the readable step that defines the result."""


@dataclass(frozen=True)
class AdamConfig(_Adaptive):
    """Steps scaled by running estimates of the gradient's first and second moment."""

    name: Literal["adam"] = "adam"
    weight_decay: NonNegative = 0.0
    """Weight decay λ: adds λ·θ to the gradient."""


@dataclass(frozen=True)
class AdamWConfig(_Adaptive):
    """Adam with decoupled weight decay: it shrinks the weights directly, not through the gradient."""

    name: Literal["adamw"] = "adamw"
    weight_decay: NonNegative = 0.01
    """Weight decay λ: every step multiplies the weights by 1 − η·λ."""


OptimizerConfig = GdConfig | SgdConfig | AdamConfig | AdamWConfig | Custom


@dataclass(frozen=True)
class ConstantConfig(Checked):
    """A constant learning rate."""

    name: Literal["constant"] = "constant"
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps of linear warm-up from 0."""


@dataclass(frozen=True)
class StepDecayConfig(Checked):
    """The learning rate is multiplied by a factor at regular intervals."""

    name: Literal["step"] = "step"
    every: Count = 1000
    """Steps between two decays."""
    factor: PositiveFloat = 0.1
    """The factor of each decay."""
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps of linear warm-up from 0."""


@dataclass(frozen=True)
class CosineConfig(Checked):
    """The learning rate follows half a cosine down to a floor at the last step."""

    name: Literal["cosine"] = "cosine"
    floor: Fraction = 0.0
    """The final rate, as a fraction of the full rate."""
    warmup: Annotated[int, AtLeast(0)] = 0
    """Steps of linear warm-up from 0."""


ScheduleConfig = ConstantConfig | StepDecayConfig | CosineConfig | Custom
