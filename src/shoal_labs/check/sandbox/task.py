"""What a worker is asked and what it answers, each one line of JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shoal_labs.check.fault import Fault, from_plain, to_plain
from shoal_labs.check.sandbox.limits import Limits

READY = "ready"
"""The first line of a worker."""


@dataclass(frozen=True)
class Task:
    """Checks of one folder that run in one sandbox."""

    package: str
    """The lab's package, whose `check` package has the table CHECKS."""
    checks: tuple[int, ...]
    """Places in the table."""
    folder: Path
    within: tuple[Path, ...]
    """For each check, where its file's folder is below the student's folder."""
    limits: Limits = field(default_factory=Limits)

    def to_plain(self) -> dict[str, Any]:
        """As JSON can represent it."""
        return {
            **asdict(self),
            "folder": str(self.folder),
            "within": [str(path) for path in self.within],
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> "Task":
        """The inverse of `to_plain`."""
        return Task(
            plain["package"],
            tuple(plain["checks"]),
            Path(plain["folder"]),
            tuple(map(Path, plain["within"])),
            Limits(**plain["limits"]),
        )


@dataclass(frozen=True)
class Answer:
    """What the checks of a task found, and what protected the machine meanwhile."""

    faults: tuple[tuple[Fault, ...], ...]
    """Of each check, in the task's order; none with a `failure`."""
    isolated: bool = True
    """Whether it ran in namespaces of its own."""
    refusal: str = ""
    """Why it did not."""
    failure: str = ""
    """Why the sandbox could not be set up. The student's code did not run, so nothing can be said about it."""

    def to_plain(self) -> dict[str, Any]:
        """As JSON can represent it."""
        return {**asdict(self), "faults": [to_plain(found) for found in self.faults]}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> "Answer":
        """The inverse of `to_plain`."""
        faults = tuple(tuple(from_plain(found)) for found in plain["faults"])
        return Answer(faults, plain["isolated"], plain["refusal"], plain["failure"])


def unanswered(task: Task, found: Sequence[Sequence[Fault]], instead: Fault) -> tuple[tuple[Fault, ...], ...]:
    """The faults of the checks that finished, and one fault for each of the others."""
    missing = len(task.checks) - len(found)
    return (*(tuple(each) for each in found), *(((instead,),) * missing))
