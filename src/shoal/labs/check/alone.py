"""Checks that need one process: the work finds the faults itself, and they come back from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.labs.check.failures import failures
from shoal.labs.check.fault import Fault
from shoal.labs.check.nodes import run_nodes


def alone(work: Callable[[int], list[Any]], *, meet: bool = False) -> Callable[[Path], list[Fault]]:
    """The faults that `work` finds in a process of its own, or why it did not come to an end."""

    def faults(folder: Path) -> list[Fault]:
        nodes = run_nodes(work, folder, 1, meet=meet)
        return failures(nodes) or [Fault(key, values) for key, values in nodes[0].answer]

    return faults


def told(faults: list[Fault]) -> list[Any]:
    """Faults as JSON can carry them."""
    return [[each.key, dict(each.values)] for each in faults]


def is_number(value: object) -> bool:
    """A float of Python's or numpy's; not a tensor, which would keep the whole graph of its step alive.

    >>> is_number(0.5), is_number([0.5])
    (True, False)
    """
    from numbers import Real

    return isinstance(value, Real)
