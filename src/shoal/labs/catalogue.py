"""Which labs there are. Names only: a lab's own modules, and torch with them, are imported when it is used."""

from typing import NamedTuple

from shoal.errors import ConfigError, unknown


class Lab(NamedTuple):
    """A lab: its package, and the line that `shoal lab` shows."""

    package: str
    summary: str


LABS: dict[str, Lab] = {
    "1": Lab("shoal.labs.lab1", "Gradient descent on one machine: GD, SGD and Adam on handwritten digits."),
}


def lab_of(number: str) -> Lab:
    """The lab of a number."""
    if number not in LABS:
        raise ConfigError(unknown("lab", number, LABS), "`shoal lab` lists the labs.")
    return LABS[number]
