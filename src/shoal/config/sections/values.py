"""Types shared by the sections: bounded numbers, and `Custom` for the user's own functions."""

from dataclasses import dataclass
from typing import Annotated, Any, SupportsIndex

from shoal.config.choices import Checked
from shoal.config.kinds import Among, AtLeast, AtMost, Below, ImportPath, Matching, MoreThan, accepts

Count = Annotated[int, AtLeast(1)]
Number = Annotated[int, AtLeast(0)]
NonNegative = Annotated[float, AtLeast(0.0)]
PositiveFloat = Annotated[float, MoreThan(0.0)]
Seconds = Annotated[float, AtLeast(0.001), AtMost(1e7)]
"""A time limit: what clocks can measure and threads can wait for."""
Layers = Annotated[int, AtLeast(1), AtMost(10_000)]
Mebibytes = Annotated[float, AtLeast(1e-6), AtMost(2**20)]
Port = Annotated[int, AtLeast(0), AtMost(65535)]
Seed = SupportsIndex
"""An integer of any size: seeds are hashed."""
UnequalDevices = Annotated[str, Matching(r"(?=.*cuda)(?=.*cpu)(cuda|cpu)(,(cuda|cpu))+", "cuda,cpu")]
"""A device for each rank."""
Fraction = Annotated[float, AtLeast(0.0), Below(1.0)]


@dataclass(frozen=True)
class Custom(Checked):
    """The user's own function, `package.module:function`, called with the options beside the name."""

    name: ImportPath
    options: tuple[tuple[str, bool | int | float | str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        # Runs of the time when the labs were a part of shoal name their functions so. The type of the text says whether
        # a file names the code (`custom.FileText`), and stays.
        if self.name.startswith("shoal.labs."):
            now = type(self.name)(self.name.replace("shoal.labs.", "shoal_labs.", 1))
            object.__setattr__(self, "name", now)


@dataclass(frozen=True)
class AmongOrOwn(Among):
    """One of the keys of a table, or the user's own `package.module:function`."""

    def holds(self, value: Any) -> bool:
        """Whether it is one of the keys, or the path of a function."""
        return super().holds(value) or accepts(ImportPath, value)[0]


def is_own(name: str) -> bool:
    """Whether a name is the path of the user's own function, and no key of a table."""
    return ":" in name
