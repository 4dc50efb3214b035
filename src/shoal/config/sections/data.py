"""What is learnt from."""

from dataclasses import dataclass
from typing import Annotated, Literal

from shoal.config.kinds import AtLeast, Checked
from shoal.config.sections.values import Count, Fraction


@dataclass(frozen=True)
class DigitsConfig(Checked):
    """10,000 + 2,000 handwritten digits out of MNIST, shipped inside the package."""

    name: Literal["digits"] = "digits"
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on only this many samples, the same part of every label; none: on all."""
    validation: Fraction = 0.0
    """Part of the training set held out, stratified by label; choices are made on it, never on the test set."""


@dataclass(frozen=True)
class MnistConfig(Checked):
    """60,000 + 10,000 handwritten digits, 28×28 grey."""

    name: Literal["mnist"] = "mnist"
    dir: str = ""
    """Where to look for the files first; then in $SHOAL_DATA, then in the user's cache."""
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on only this many samples, the same part of every label; none: on all."""
    validation: Fraction = 0.0
    """Part of the training set held out, stratified by label; choices are made on it, never on the test set."""


@dataclass(frozen=True)
class FashionMnistConfig(Checked):
    """60,000 + 10,000 pictures of clothes, 28×28 grey."""

    name: Literal["fashion-mnist"] = "fashion-mnist"
    dir: str = ""
    """Where to look for the files first; then in $SHOAL_DATA, then in the user's cache."""
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on only this many samples, the same part of every label; none: on all."""
    validation: Fraction = 0.0
    """Part of the training set held out, stratified by label; choices are made on it, never on the test set."""


@dataclass(frozen=True)
class Cifar10Config(Checked):
    """50,000 + 10,000 photographs of ten kinds of things, 32×32 colour."""

    name: Literal["cifar10"] = "cifar10"
    dir: str = ""
    """Where to look for the files first; then in $SHOAL_DATA, then in the user's cache."""
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on only this many samples, the same part of every label; none: on all."""
    validation: Fraction = 0.0
    """Part of the training set held out, stratified by label; choices are made on it, never on the test set."""
    augment: bool = True
    """Shift by up to four pixels and mirror, anew for every batch of the training set."""


@dataclass(frozen=True)
class SyntheticConfig(Checked):
    """Data made from a seed, of any size: nothing to fetch, and the answer is known to be learnable."""

    name: Literal["synthetic"] = "synthetic"
    task: Literal["classification", "regression", "text"] = "classification"
    """What is to be learnt: a label, a number, or the next byte."""
    samples: Count = 4096
    """Training samples; a fifth as many are made for the test set."""
    shape: tuple[Count, ...] = (1, 28, 28)
    """Shape of one input; for text, one number: the length of a sequence in bytes."""
    classes: Annotated[int, AtLeast(2)] = 10
    """How many labels there are (classification)."""
    seed: int = 0
    """Seed of the data alone, so that the run's seed can change and the data stay."""
    validation: Fraction = 0.0
    """Part of the training set held out; choices are made on it, never on the test set."""


DataConfig = DigitsConfig | MnistConfig | FashionMnistConfig | Cifar10Config | SyntheticConfig
