"""Checks that need one process with the student's code: it finds the faults itself, or answers with what it saw."""

from collections.abc import Callable
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import Any

from shoal_labs.check.failures import failures
from shoal_labs.check.fault import Fault
from shoal_labs.check.nodes import run_nodes


def observed(
    observe: Callable[..., Any], judge: Callable[[Any], list[Fault]], *args: Any
) -> Callable[[Path], list[Fault]]:
    """The faults that `judge` finds, here, in what `observe(*args)` returns in a process with the student's code.

    JSON must be able to represent it. A student's code can forge it only with the right numbers.
    """

    def faults(folder: Path) -> list[Fault]:
        nodes = run_nodes(called, folder, 1, observe.__module__, observe.__qualname__, *args, meet=False)
        return failures(nodes) or judge(nodes[0].answer)

    return faults


def called(rank: int, module: str, function: str, *args: Any) -> Any:
    """What a function of a module returns."""
    return getattr(import_module(module), function)(*args)


def alone(work: Callable[..., list[Fault]], *args: Any, meet: bool = False) -> Callable[[Path], list[Fault]]:
    """The faults that `work(*args)` finds in a process of its own, or why it did not finish."""

    def faults(folder: Path) -> list[Fault]:
        nodes = run_nodes(found_by, folder, 1, work.__module__, work.__qualname__, *args, meet=meet)
        return failures(nodes) or [Fault(key, values) for key, values in nodes[0].answer]

    return faults


def found_by(rank: int, module: str, function: str, *args: Any) -> list[Any]:
    """What a function finds, in a form that JSON can represent."""
    found: list[Fault] = called(rank, module, function, *args)
    return [[each.key, dict(each.values)] for each in found]


def is_number(value: object) -> bool:
    """A float of Python or numpy; not a tensor, which would keep the whole graph of its step alive.

    >>> is_number(0.5), is_number([0.5])
    (True, False)
    """
    return isinstance(value, Real)
