"""Which labs there are. Names only: a lab's own modules, and torch with them, are imported when it is used."""

from typing import NamedTuple

from shoal.errors import ConfigError, unknown


class Lab(NamedTuple):
    """A lab: its package, the line that `shoal lab` shows, and the flags it takes besides those that all take."""

    package: str
    summary: str
    flags: tuple[str, ...]


LABS: dict[str, Lab] = {
    "1": Lab(
        "shoal.labs.lab1",
        "Gradient descent on one machine: GD, SGD and Adam on handwritten digits.",
        ("--data", "--data-dir", "--runs"),
    ),
    "autograd": Lab(
        "shoal.labs.autograd",
        "Automatic differentiation: a tape, a static graph, and what each of them costs.",
        (),
    ),
}


def lab_of(number: str) -> Lab:
    """The lab of a number or a name."""
    if number not in LABS:
        raise ConfigError(unknown("lab", number, LABS), "`shoal lab` lists the labs.")
    return LABS[number]
