"""A fault of a solution, and a check that finds faults."""

from collections.abc import Callable, Collection, Mapping, Sequence
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


def parted(**parts: Collection[str]) -> Callable[[Fault], str]:
    """For `Check.part`: the part of a task whose faults these are.

    >>> parted(delay=["slept"])(fault("slept")), parted(delay=["slept"])(fault("died"))
    ('delay', '')
    """
    return lambda found: next((part for part, keys in parts.items() if found.key in keys), "")


STOPS = frozenset({"raises", "not_done"})
"""Faults of a function that ended a check."""


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
    blame: Mapping[str, str] = field(default_factory=dict[str, str])
    """Task to which a fault belongs, by its key, or by the function that raises; other faults belong to all tasks."""
    part: Callable[[Fault], str] = lambda _: ""
    """Part of the task in which a fault is; empty: the whole task is wrong."""
    parts: int = 1
    """How many parts a task has that can be told apart; each gives the same share of its points."""

    def of_task(self, task: str, faults: Sequence[Fault], source: str) -> tuple[Fault, ...]:
        """The faults of one task. An error stops the check: later tasks of the same check are not tested.

        `source` is the student's file. It shows which later tasks are not done.
        """
        begun = f'NotImplementedError("Task {task}:' not in source
        kept: list[Fault] = []
        for each in faults:
            names = str(each.values.get("functions", "")).split(",") if each.key in STOPS else [each.key]
            owner = next((self.blame[name] for name in names if name in self.blame), task)
            if owner == task:
                kept.append(each)
            elif each.key in STOPS and self.tasks.index(owner) < self.tasks.index(task):
                kept.append(fault("not_reached") if begun else fault("not_done"))
        return tuple(kept)

    def share(self, faults: Sequence[Fault]) -> float:
        """The part of a task that is right, from 0 to 1."""
        wrong = {self.part(each) for each in faults}
        return 0.0 if "" in wrong else 1 - len(wrong) / self.parts
