"""A fault of a solution, and a check: how some tasks of a lab are tried, and which faults cost which task.

A table of checks names functions as "module:function", so that reading it imports neither torch nor the tests.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


def to_plain(faults: Iterable[Fault]) -> list[Any]:
    """Faults as JSON can represent them."""
    return [[each.key, dict(each.values)] for each in faults]


def from_plain(plain: Iterable[Any]) -> list[Fault]:
    """The inverse of `to_plain`."""
    return [Fault(key, values) for key, values in plain]


OPEN = r"(?:Task |任务 )(\w+)[:：]"
"""How the skeleton's error for a task begins, in any language."""


def open_tasks(source: str) -> list[str]:
    """The tasks that a file still leaves to the skeleton's error.

    >>> open_tasks('raise NotImplementedError("Task gd_step: see README.md")')
    ['gd_step']
    """
    return re.findall(rf'NotImplementedError\("{OPEN}', source)


STOPS = frozenset({"raises", "not_done"})
"""Faults of a function that ended a check."""
OF_NO_TASK = STOPS | {
    *("missing_name", "missing_file", "no_file", "no_sandbox", "died", "too_long"),
    *("over_memory", "over_processes", "waits", "order", "count"),
}
"""Faults that say nothing about one task of a check that has several."""


@dataclass(frozen=True)
class Check:
    """How some tasks of a lab are checked.

    `observe` runs in a process with the student's code, `judge` in another one that never runs it. Where one process
    cannot say what it saw as data, `observe` returns the faults itself and there is no `judge`.
    """

    tasks: tuple[str, ...]
    """The names of the tasks in the skeleton."""
    file: str
    """The student's file with the tasks."""
    observe: str = ""
    """What each node runs: it is given `args`, and returns what JSON can represent."""
    judge: str = ""
    """Finds the faults in what the nodes saw: given the answer of one node, or all nodes if there are several."""
    args: tuple[str, ...] = ()
    nodes: int = 1
    meet: bool = False
    """Whether the nodes form a process group of torch."""
    folder: str = ""
    """Instead of `observe`: finds the faults of `args`, given the student's folder."""
    program: str = ""
    """For a folder in the course's form: finds the faults in what its program does; empty if that shows nothing."""
    given: tuple[str, ...] = ()
    """Functions by which model.py is known to be our hand-out; the course's own then does not ask for the tasks."""
    name: str = ""
    """The function or class of the tasks, if it is not called as the task is."""
    optional: bool = False
    """Whether the tasks may stay open."""
    run: str = ""
    """Checks with the same name here share what they run, so they run in one process."""
    blame: Mapping[str, str] = field(default_factory=dict[str, str])
    """Task to which a fault belongs, by its key, or by the function that raises; others belong to the last task."""
    parts: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    """Parts of a task that can be told apart, with the keys of their faults; each gives an equal share."""

    @property
    def course(self) -> bool:
        """Whether the course's own hand-out asks for it; a folder in that shape need not have the others."""
        return not self.given

    def of_task(self, task: str, faults: Sequence[Fault], source: str) -> tuple[Fault, ...]:
        """The faults of one task. An error stops the check: later tasks of the same check are not tested.

        `source` is the student's file. It shows which later tasks are not done.
        """
        begun = task not in open_tasks(source)
        kept: list[Fault] = []
        for each in faults:
            names = str(each.values.get("functions", "")).split(",") if each.key in STOPS else [each.key]
            others = task if each.key in OF_NO_TASK else self.tasks[-1]
            owner = next((self.blame[name] for name in names if name in self.blame), others)
            if owner == task:
                kept.append(each)
            elif each.key in STOPS and self.tasks.index(owner) < self.tasks.index(task):
                kept.append(fault("not_reached") if begun else fault("not_done"))
        return tuple(kept)

    def part(self, found: Fault) -> str:
        """The part of the task in which a fault is, by its key or its optimizer; empty: the whole task is wrong.

        >>> Check(("average",), "model.py", parts={"delay": ["slept"], "step": []}).part(fault("slept"))
        'delay'
        """
        named = str(found.values.get("optimizer", ""))
        by_key = next((part for part, keys in self.parts.items() if found.key in keys), "")
        return named if named in self.parts else by_key

    def share(self, faults: Sequence[Fault]) -> float:
        """The part of a task that is right, from 0 to 1."""
        wrong = {self.part(each) for each in faults}
        return 0.0 if "" in wrong else 1 - len(wrong) / (len(self.parts) or 1)
