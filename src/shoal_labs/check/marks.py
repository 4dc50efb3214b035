"""Marks of one folder: the weights of its right tasks, in percent of those that count."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

from shoal.kit.base import ConfigError, printable, unknown
from shoal_labs.catalogue import LABS
from shoal_labs.check.solution import Checked, Verdict, checks_of
from shoal_labs.words import Words

LARGEST = 1e6
"""Weight of a task."""


@dataclass(frozen=True)
class TaskMark:
    """The mark of a task."""

    file: str
    name: str
    asks: str
    """The task, in a sentence."""
    word: str
    """right, partly, wrong, open, not_marked; not_asked: this folder need not do it, or it cannot be tested."""
    mark: float
    weight: float
    sentences: tuple[str, ...]
    """What is wrong, in the words of the report."""
    keys: tuple[str, ...] = ()
    """The same for programs: the key of each sentence."""


@dataclass(frozen=True)
class Grade:
    """The marks of one folder."""

    folder: Path
    name: str
    """What distinguishes the folder from the others, such as the student's name."""
    tasks: tuple[TaskMark, ...]

    @property
    def mark(self) -> float:
        """Points for right tasks."""
        return sum(task.mark for task in self.tasks)

    @property
    def most(self) -> float:
        """Points for all tasks that count."""
        return sum(task.weight for task in self.tasks)

    @property
    def percent(self) -> float:
        """The mark in percent; 0 if no task counts."""
        return 100 * self.mark / self.most if self.most else 0.0

    @property
    def marked(self) -> bool:
        """Whether all tasks were checked; otherwise the marks are too low."""
        return all(task.word != "not_marked" for task in self.tasks)

    def summary(self, words: Words) -> str:
        """How many of the tasks that count are right, and the points, in one sentence."""
        right = sum(task.word == "right" for task in self.tasks)
        asked = sum(task.word != "not_asked" for task in self.tasks)
        shown = {"mark": f"{self.mark:.3g}", "most": f"{self.most:.3g}", "percent": f"{self.percent:.0f}"}
        return words("grade.summary", right=right, all=asked, **shown)

    @property
    def all_right(self) -> bool:
        """Whether every task that counts is right."""
        return all(task.word in ("right", "not_asked") for task in self.tasks)

    def to_plain(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "folder": printable(str(self.folder)),
            "name": self.name,
            "mark": self.mark if self.marked else None,
            "most": self.most,
            "percent": round(self.percent, 2) if self.marked else None,
            "tasks": [
                {
                    "file": task.file,
                    "tasks": [task.name],
                    "verdict": task.word,
                    "mark": task.mark,
                    "weight": task.weight,
                    "faults": list(task.sentences),
                }
                for task in self.tasks
            ],
        }


def grade(checked: Checked, name: str, weights: Mapping[str, float], words: Words) -> Grade:
    """The marks of a folder that was checked."""
    return Grade(checked.folder, name, tuple(_marked(each, weights, words) for each in checked.verdicts))


def _marked(verdict: Verdict, weights: Mapping[str, float], words: Words) -> TaskMark:
    weight = weights[verdict.task] if verdict.counts else 0.0
    return TaskMark(
        verdict.path.name,
        verdict.task,
        words.sentences[f"task.{verdict.task}"],
        verdict.word if verdict.counts else "not_asked",
        weight * verdict.share if verdict.word in ("right", "partly") else 0.0,
        weight,
        tuple(printable(words(f"check.{each.key}", **each.values)) for each in verdict.faults),
        tuple(each.key for each in verdict.faults),
    )


def names_of(folders: Sequence[Path]) -> list[str]:
    """A name for every folder, which no other has: the parts of its path in which the folders differ.

    A name becomes the name of a page, so two also differ where a file system ignores case and the form of accents.

    >>> names_of([Path("hand-ins/an"), Path("hand-ins/bo")])
    ['an', 'bo']
    >>> names_of([Path("/in/an/lab1"), Path("/in/bo/lab1")])
    ['an', 'bo']
    >>> names_of([Path("/in/li-wei"), Path("/in/li/wei")])
    ['li-wei-2', 'li-wei']
    """
    parts = [folder.resolve().parts for folder in folders]
    if len(parts) == 1:
        return [printable(parts[0][-1]) if len(parts[0]) > 1 else "root"]
    while all(len(each) > 1 for each in parts) and len({each[0] for each in parts}) == 1:
        parts = [each[1:] for each in parts]
    while all(len(each) > 1 for each in parts) and len({each[-1] for each in parts}) == 1:
        parts = [each[:-1] for each in parts]
    names = [printable("-".join(each).replace("/", "")) for each in parts]
    return _distinct(names, [folder.resolve() for folder in folders])


def _distinct(names: Sequence[str], folders: Sequence[Path]) -> list[str]:
    """The names, with a number after those that are taken."""
    found, wanted = list(names), set(map(_as_file, names))
    taken: set[str] = set()
    # By path: the order in which the folders were given must not decide whose page has which name.
    for place in sorted(range(len(names)), key=folders.__getitem__):
        number = 1
        while _as_file(found[place]) in taken or (number > 1 and _as_file(found[place]) in wanted):
            number += 1
            found[place] = f"{names[place]}-{number}"
        taken.add(_as_file(found[place]))
    return found


def _as_file(name: str) -> str:
    """Equal for names that some file system takes for the same."""
    return normalize("NFC", normalize("NFD", name).casefold())


def load_weights(path: Path | None, number: str) -> dict[str, float]:
    """The weight of every task of a lab: one, unless a teacher's TOML file says otherwise.

    [lab1]
    adam_step = 3
    zero_grad = 0.5
    """
    weights = dict.fromkeys((task for each in checks_of(number) for task in each.tasks), 1.0)
    if path is None:
        return weights
    tables = _tables(path)
    known = [f"lab{name}" for name, lab in LABS.items() if lab.hand_out]
    for name in tables:
        if name not in known:
            raise ConfigError(f"{path}: {unknown('lab', name, known)}", "Write a table for a lab: [lab1].")
    for task, weight in tables.get(f"lab{number}", {}).items():
        if task not in weights:
            raise ConfigError(f"{path}, [lab{number}]: {unknown('task', task, weights)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= LARGEST:
            raise ConfigError(
                f"{path}, [lab{number}]: {task} = {weight!r} is not a weight",
                "A weight is a number from 0 on: 0 means that the task does not count.",
            )
        weights[task] = float(weight)
    if not any(weights.values()):
        raise ConfigError(f"{path}, [lab{number}]: all weights are 0", "Give some task a weight above 0.")
    return weights


def _tables(path: Path) -> Mapping[str, Mapping[str, Any]]:
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", "Give a TOML file with --weights."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text in UTF-8", "Give a TOML file with --weights.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    for name, table in read.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name} is not in the table of a lab", "Begin with a line [lab1].")
    return read
