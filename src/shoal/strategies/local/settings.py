"""Settings of `local`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from shoal.config.choices import Checked
from shoal.config.feature import Row
from shoal.config.kinds import AtLeast
from shoal.config.sections.values import Count, Fraction, PositiveFloat
from shoal.errors import ConfigError


@dataclass(frozen=True)
class LocalConfig(Checked):
    """Replicas train alone for some steps, then average their weights (local SGD, DiLoCo, streaming DiLoCo)."""

    REFUSES: ClassVar[Row] = {
        "--exchange compressed:auto": "it compares codecs by the time of an exchange in every step",
        "--exchange compressed:dgc": "it replaces the optimizer's momentum, and here the optimizer steps between two "
        "exchanges",
    }

    name: Literal["local"] = "local"
    every: Count = 20
    """Steps between two averagings of a weight, k."""
    outer_lr: PositiveFloat = 1.0
    """Learning rate of the outer step, which moves the weights towards their average; 1: all the way."""
    outer_momentum: Fraction = 0.0
    """Nesterov momentum of the outer step; DiLoCo has 0.9, and 0.7 for outer_lr."""
    fragments: Count = 1
    """Average this many equal parts of the weights at different steps, so that no step sends all of them."""
    overlap: Annotated[int, AtLeast(0)] = 0
    """Steps that a worker goes on training while an average is on its way; 0: it waits."""
    moments: Literal["average", "keep"] | None = None
    """The optimizer's moments: average them with the weights, or keep each worker's; none: average, unless overlap."""
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap > self.every:
            raise ConfigError(
                f"--strategy.overlap {self.overlap} is more than --strategy.every {self.every}: an average would "
                "arrive after the next one has begun",
                f"Use --strategy.overlap {self.every} or less.",
            )
        if self.overlap and self.moments == "average":
            raise ConfigError(
                f"--strategy.moments average needs averages without delay, but --strategy.overlap is {self.overlap}",
                "Use --strategy.moments keep, or --strategy.overlap 0.",
            )

    @property
    def averages_moments(self) -> bool:
        """Whether the optimizer's moments are averaged with the weights."""
        return not self.overlap and self.moments != "keep"
