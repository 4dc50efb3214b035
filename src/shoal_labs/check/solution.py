"""The verdict on students' folders, in the course's layout or any part of it with the files."""

import ast
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Literal

from shoal.kit.base import ConfigError
from shoal_labs.catalogue import LABS, lab_of
from shoal_labs.check.fault import Check, Fault, fault, open_tasks
from shoal_labs.check.sandbox.limits import Limits
from shoal_labs.check.sandbox.pool import answers
from shoal_labs.check.sandbox.task import Answer, Task
from shoal_labs.handout.start import unsolved
from shoal_labs.words import LANGUAGES, Words, load_words

UNTESTED = frozenset({"not_reached", "not_shown", "program_stops", "not_in_course"})
"""Faults of tasks that could not be tested, because of another task or because the program does not show them."""
NOT_WRONG = UNTESTED | {"not_done", "not_offered", "missing_name", "missing_file"}
"""Faults of tasks that were not started, or could not be tested."""
ABSENT = frozenset({"missing_name", "missing_file"})
NO_SANDBOX = "no_sandbox"
"""The fault of a task whose sandbox could not be set up."""
LONGEST = 10_000
"""Letters of all sentences about a task."""
MOST_SOURCE = 2**20
"""Letters of a student's file that are read outside of the sandbox."""
DEEPEST = 4
"""Folders within folders in which files of the hand-out are looked for."""
MOST_FOLDERS = 10_000
"""In which a file is looked for."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a task of a student's file."""

    path: Path
    task: str
    faults: tuple[Fault, ...]
    optional: bool = False
    share: float = 0.0
    """The part of the task that is right, if some of it is."""

    @property
    def counts(self) -> bool:
        """Whether the task has to be done and can be tested; an optional one only counts once it was started."""
        if any(each.key in UNTESTED for each in self.faults):
            return False
        return not self.optional or self.word != "open"

    @property
    def word(self) -> Literal["right", "partly", "wrong", "open", "not_marked"]:
        """The verdict in a word; a task that was not started is open, not wrong."""
        if any(each.key == NO_SANDBOX for each in self.faults):
            return "not_marked"
        if any(each.key in NOT_WRONG for each in self.faults):
            return "open"
        if not self.faults:
            return "right"
        return "partly" if self.share > 0 else "wrong"


@dataclass(frozen=True)
class Checked:
    """All verdicts on one folder, and what protected the machine from it."""

    folder: Path
    verdicts: tuple[Verdict, ...]
    answers: tuple[Answer, ...] = field(default=(), repr=False)


def checks_of(number: str) -> tuple[Check, ...]:
    """The table of a lab's checks."""
    lab = lab_of(number)
    if not lab.hand_out:
        raise ConfigError(
            f"lab {number} has no tasks to check",
            f"Labs with tasks: {', '.join(name for name, each in LABS.items() if each.hand_out)}.",
        )
    return import_module(f"{lab.package}.check").CHECKS


def require_files(number: str, folder: Path) -> None:
    """Refuse a folder without any file of the lab: it is probably not the one that was meant."""
    checks = checks_of(number)
    if not any(find_file(number, folder, each.file) for each in checks):
        raise ConfigError(
            f"there is no {lab_of(number).hand_out[0]} in {folder.resolve()}",
            f"Give the folder that you passed to --out: `shoal lab check {number} FOLDER`.",
        )


def check_folders(
    number: str, folders: Sequence[Path], limits: Limits | None = None, jobs: int = 1
) -> Iterator[Checked]:
    """Check folders one after the other, or several at once, each task in a sandbox. Results are in their order.

    Tasks whose sandbox cannot be set up are not marked: the student's code did not run.
    """
    checks = checks_of(number)
    tasks = [tasks_of(number, folder.resolve(), limits or Limits()) for folder in folders]
    languages = [load_words(lab_of(number).package, lang) for lang in LANGUAGES]
    with closing(answers([task for several in tasks for task in several], jobs)) as given:
        for folder, own in zip(folders, tasks, strict=True):
            answered = list(islice(given, len(own)))
            found = {
                place: faults
                for task, answer in zip(own, answered, strict=True)
                for place, faults in zip(task.checks, _faults(task, answer, languages), strict=True)
            }
            files = [find_file(number, folder, each.file) for each in checks]
            unrun = [
                (fault("not_done") if file else fault("missing_file", file=each.file),)
                for each, file in zip(checks, files, strict=True)
            ]
            faults = [found.get(place, unrun[place]) for place in range(len(checks))]
            yield Checked(folder, verdicts_of(checks, folder, files, faults), tuple(answered))


def _faults(task: Task, answer: Answer, languages: Sequence[Words]) -> Sequence[tuple[Fault, ...]]:
    """The faults of each check. Without a sandbox there is none to find; faults without a sentence are not ours."""
    if answer.failure:
        return ((fault(NO_SANDBOX, why=answer.failure),),) * len(task.checks)
    return [each if _have_sentences(each, languages) else (fault("died"),) for each in answer.faults]


def _have_sentences(faults: Sequence[Fault], languages: Sequence[Words]) -> bool:
    """Whether every language can say these faults: a process that runs students' code may answer anything."""
    try:
        said = [words(f"check.{each.key}", **each.values) for words in languages for each in faults]
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        return False
    return sum(map(len, said)) <= LONGEST and not any(each.key == NO_SANDBOX for each in faults)


def verdicts_of(
    checks: Sequence[Check],
    folder: Path,
    files: Sequence[Path | None],
    faults: Sequence[Sequence[Fault]],
) -> tuple[Verdict, ...]:
    """The verdict on each task of a folder: its own faults, and how much of it is right.

    The course's own hand-out has fewer tasks: a folder with none of the others need not do them.
    """
    extra = [found for each, found in zip(checks, faults, strict=True) if not each.course]
    in_the_courses = all(any(each.key in ABSENT for each in found) for found in extra)
    return tuple(
        Verdict(
            file or folder / each.file,
            task,
            own,
            each.optional or (in_the_courses and not each.course),
            each.share(own),
        )
        for each, file, found in zip(checks, files, faults, strict=True)
        for task in each.tasks
        for own in [each.of_task(task, found, _source(file) if file else "")]
    )


def _source(path: Path) -> str:
    """The text of a student's file; of a very long one, the beginning."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_SOURCE)
    except OSError:
        return ""


def tasks_of(number: str, folder: Path, limits: Limits) -> list[Task]:
    """The checks whose file the folder has, and with tasks that were begun; those that share a run are one task."""
    package, groups = lab_of(number).package, dict[str, dict[int, Path]]()
    for place, each in enumerate(checks_of(number)):
        file = find_file(number, folder, each.file)
        if file and not is_untouched(number, file, each.tasks):
            groups.setdefault(each.run or str(place), {})[place] = file.parent.relative_to(folder)
    return [Task(package, tuple(group), folder, tuple(group.values()), limits) for group in groups.values()]


def is_untouched(number: str, file: Path, tasks: Sequence[str]) -> bool:
    """Whether a file has these tasks as they were handed out: every line of the classes or functions around them.

    Only lines are compared: parsing a student's file is for the sandbox.
    """
    text = "\n".join(map(str.rstrip, _source(file).splitlines()))
    for blocks in _handed_out(number, file.name):
        named = [blocks[task] for task in tasks if task in blocks]
        if len(named) == len(tasks) and all(
            f"\n{block}\n" in f"\n{text}\n\n" and len(re.findall(rf"^{head}\b", text, re.MULTILINE)) == 1
            for head, block in named
        ):
            return True
    return False


@cache
def _handed_out(number: str, name: str) -> list[dict[str, tuple[str, str]]]:
    """In each language, for each task of a file: how its class or function begins, and all its lines."""
    found: list[dict[str, tuple[str, str]]] = []
    for lang in LANGUAGES:
        files = unsolved(number, load_words(lab_of(number).package, lang))
        source = next(text for path, text in files.items() if path.name == name)
        lines = [line.rstrip() for line in source.splitlines()]
        blocks = [
            "\n".join(lines[node.lineno - 1 : node.end_lineno])
            for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        ]
        found.append(
            {
                task: (" ".join(re.split(r"\W", block, maxsplit=2)[:2]), block)
                for block in blocks
                for task in open_tasks(block)
            }
        )
    return found


def find_file(number: str, folder: Path, name: str) -> Path | None:
    """A file of the hand-out: the folder may be the one given to `start`, one below it, or one around it.

    Links that lead out of the folder are not followed: opening what they lead to may never end.
    """
    whole = next(path for path in map(PurePosixPath, lab_of(number).hand_out) if path.name == name)
    beginning = (folder.joinpath(*whole.parts[skipped:]) for skipped in range(len(whole.parts)))
    for place in chain(beginning, (each / name for each in _folders_below(folder))):
        if place.is_file() and place.resolve().is_relative_to(folder.resolve()):
            return place
    return None


def _folders_below(folder: Path) -> Iterator[Path]:
    """The first `MOST_FOLDERS` folders, level by level. Links are left out: they can lead round in circles."""
    left, level = MOST_FOLDERS, [folder]
    for _ in range(DEEPEST):
        inside = chain.from_iterable(map(_folders_in, level))
        level = sorted(islice(inside, left), key=lambda path: path.parts)
        left -= len(level)
        yield from level


def _folders_in(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from (Path(each) for each in entries if each.is_dir(follow_symlinks=False))
    except OSError:  # may not be read
        return
