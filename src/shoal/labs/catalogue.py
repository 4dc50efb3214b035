"""Which labs there are. Names only: a lab's own modules, and torch with them, are imported when it is used."""

from typing import NamedTuple

from shoal.errors import ConfigError, unknown


class Lab(NamedTuple):
    """A lab: its package, the line that `shoal lab` shows, what it takes and what it hands out."""

    package: str
    summary: str
    flags: tuple[str, ...] = ()
    """The flags it takes besides those that all take."""
    hand_out: tuple[str, ...] = ()
    """The student's files in the course's shape; the last part of each is its name in the lab's `solution` package."""


LABS: dict[str, Lab] = {
    "1": Lab(
        "shoal.labs.lab1",
        "Gradient descent on one machine: GD, SGD and Adam on handwritten digits.",
        ("--data", "--data-dir", "--runs"),
        ("task1/pytorch/MyOptimizer.py", "task1/pytorch/model.py"),
    ),
    "autograd": Lab(
        "shoal.labs.autograd",
        "Automatic differentiation: a tape, a static graph, and what each of them costs.",
    ),
}


def lab_of(number: str) -> Lab:
    """The lab of a number or a name."""
    if number not in LABS:
        raise ConfigError(unknown("lab", number, LABS), "`shoal lab` lists the labs.")
    return LABS[number]
