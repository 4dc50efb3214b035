"""Settings of `onecopy`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from shoal.config.choices import Checked
from shoal.config.feature import DIVIDED_WEIGHTS, Row


@dataclass(frozen=True)
class OneCopyConfig(Checked):
    """One copy of the weights in memory that all workers of a machine map; each worker updates its slice."""

    REFUSES: ClassVar[Row] = DIVIDED_WEIGHTS

    name: Literal["onecopy"] = "onecopy"
    unused: Literal["refuse", "zero"] = "refuse"
    """A parameter without a gradient: raise an error that names it, or use zero."""
