"""A fault of a solution, and a check that finds faults."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: the key of its sentence among a lab's words, below `check.`, and the values in it."""

    key: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])


def fault(key: str, **values: Any) -> Fault:
    """A fault with the values of its sentence.

    >>> fault("sum", nodes=3)
    Fault(key='sum', values={'nodes': 3})
    """
    return Fault(key, values)


@dataclass(frozen=True)
class Check:
    """How some tasks of a lab are checked."""

    tasks: tuple[str, ...]
    """The names of the tasks in the skeleton."""
    file: str
    """The student's file with the tasks."""
    faults: Callable[[Path], list[Fault]]
    """Finds what is wrong, given the folder of that file; nothing if it is right."""
    optional: bool = False
    """Whether the tasks may stay open."""
    run: str = ""
    """Checks with the same name here share what they run, so they run in one process."""
    course: bool = True
    """Whether the course's own hand-out asks for it; a folder in that shape need not have the others."""
