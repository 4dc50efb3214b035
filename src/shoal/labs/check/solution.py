"""The verdict on a student's folder, in the course's layout or any part of it with the files."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Literal

from shoal.errors import ConfigError
from shoal.labs.catalogue import LABS, lab_of
from shoal.labs.check.fault import Check, Fault

NOT_WRONG = frozenset({"not_done", "not_reached", "not_offered"})
"""Faults of tasks that were not started, or could not be tested."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with some tasks of a student's file."""

    path: Path
    tasks: tuple[str, ...]
    faults: tuple[Fault, ...]
    optional: bool = False

    @property
    def counts(self) -> bool:
        """Whether it is one of the tasks to be done: an optional one only once it was started."""
        return not self.optional or self.word != "open"

    @property
    def word(self) -> Literal["right", "wrong", "open"]:
        """The verdict in a word; a task that was not started is open, not wrong."""
        if any(fault.key in NOT_WRONG for fault in self.faults):
            return "open"
        return "wrong" if self.faults else "right"


def check(number: str, folder: Path) -> Iterator[Verdict]:
    """Check the tasks of a lab one after the other. A missing file is an error before the first check."""
    lab = lab_of(number)
    if not lab.hand_out:
        raise ConfigError(
            f"lab {number} has no tasks to check",
            f"Labs with tasks: {', '.join(name for name, each in LABS.items() if each.hand_out)}.",
        )
    checks: tuple[Check, ...] = import_module(f"{lab.package}.check").CHECKS
    found = {each.file: file_of(number, folder, each.file) for each in checks}
    return (
        Verdict(found[each.file], each.tasks, tuple(each.faults(found[each.file].parent)), each.optional)
        for each in checks
    )


def file_of(number: str, folder: Path, name: str) -> Path:
    """The path of a file of the hand-out: the folder may be the one given to `start`, or any below it."""
    whole = next(path for path in map(PurePosixPath, lab_of(number).hand_out) if path.name == name)
    places = [folder.joinpath(*whole.parts[skipped:]) for skipped in range(len(whole.parts))]
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(
        f"there is no {whole} in {folder.resolve()}",
        f"Give the folder that you passed to --out: `shoal lab check {number} FOLDER`.",
    )
