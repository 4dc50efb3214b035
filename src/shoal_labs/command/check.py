"""`shoal lab check`: a student's own check, and the marks of many folders."""

import errno
import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal

from shoal.kit.base import ConfigError
from shoal.kit.command import Command, Given, is_device_or_folder, text
from shoal.kit.settings import Count, Flags
from shoal_labs.catalogue import lab_of
from shoal_labs.settings import in_language

if TYPE_CHECKING:
    from shoal_labs.check.marks import Grade
    from shoal_labs.check.solution import Checked
    from shoal_labs.words import Words


_HALF_OF_THE_CORES = max(1, (os.cpu_count() or 1) // 2)


@dataclass(frozen=True)
class CheckFlags(Flags):
    """How solutions are checked and reported on."""

    lang: Literal["en", "zh"] = "en"
    """Language of the sentences and pages."""
    json: bool = False
    """Print the result of every folder as JSON."""
    csv: Path | None = None
    """File for a table with a row for each folder."""
    pages: Path | None = None
    """Folder for a page for each student; with several students also one about the class, `index.html`."""
    weights: Path | None = None
    """TOML file with the weight of each task: a table [lab1], lines such as adam_step = 3 (default 1 each)."""
    jobs: Count = _HALF_OF_THE_CORES
    """Tasks that are checked at once."""
    work_s: float = 30.0
    """Seconds that the student's code may take in one test."""
    memory_gib: float = 4.0
    """Memory of all its processes together."""


def _check(given: Given[CheckFlags]) -> int:
    """Check your solution of a lab, or give marks for many.

    DIR is a folder with the files (default: this one); with several, each gets its marks. Students' code runs in a
    sandbox: it sees no files but its own, reaches no network, and is stopped when it takes too long.

    The exit code is 1 unless every task is right, and 2 if a folder could not be marked.
    """
    from shoal_labs.check.marks import grade, load_weights, names_of
    from shoal_labs.check.sandbox.limits import Limits
    from shoal_labs.check.solution import check_folders
    from shoal_labs.words import load_words

    flags, (number, *words) = given.flags, given.words
    weights = load_weights(flags.weights, number)
    folders = _folders(number, words)
    _require_writable(flags)
    sentences = load_words(lab_of(number).package, flags.lang)
    limits = Limits(
        work_s=_positive("--work-s", flags.work_s), memory_gib=_positive("--memory-gib", flags.memory_gib)
    )
    grades: list[Grade] = []
    warned = False
    try:
        checks = check_folders(number, folders, limits, flags.jobs)
        for checked, name in zip(checks, names_of(folders), strict=True):
            warned = warned or _warn(checked, sentences)
            grades.append(grade(checked, name, weights, sentences))
            if not flags.json:
                _show(grades[-1], sentences, alone=len(folders) == 1)
    except KeyboardInterrupt:
        _write(number, flags, grades, sentences)
        return 130
    _write(number, flags, grades, sentences)
    if flags.json:
        text.show(json.dumps([each.to_plain() for each in grades], ensure_ascii=False, indent=2))
    elif len(grades) == 1 and grades[0].marked:
        _show_next(number, words, folders[0], grades[0], sentences)
    if unmarked := [each.name for each in grades if not each.marked]:
        text.warn(sentences("grade.unmarked", count=len(unmarked), all=len(grades), names=unmarked))
        return 2
    return 0 if all(each.all_right for each in grades) else 1


def _show_next(number: str, words: "Sequence[str]", folder: Path, grade: "Grade", sentences: "Words") -> None:
    """Of one's own solution: the report about it when all tasks are right, else the first file to repair."""
    from shoal_labs.check.solution import find_file

    lang = in_language(sentences.lang)
    wrong = [task.file for task in grade.tasks if task.word in ("wrong", "partly", "open")]
    if not wrong:
        text.next_step("shoal", "lab", number, "--quick", "--solution", folder, *lang)
    else:
        file = find_file(number, folder, wrong[0]) or wrong[0]
        text.next_step(
            "shoal", "lab", "check", number, *words, *lang, first=sentences("next.repair", file=file)
        )


def _folders(number: str, words: Sequence[str]) -> list[Path]:
    """The folders that were given; each must exist, and a single one must have a file of the lab."""
    from shoal_labs.check.solution import require_files

    folders = [Path(word) for word in words] or [Path()]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder", "Give the folder of each student.")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ConfigError("a folder is given twice", "Give each folder once.")
    if len(folders) == 1:
        require_files(number, folders[0])
    return folders


def _require_writable(flags: CheckFlags) -> None:
    """Refuse a table or pages that cannot be written: marking many folders takes long."""
    table, pages = flags.csv, flags.pages
    if table:
        with _refusing(table, "--csv"):
            if table.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            if table.exists() and not os.access(table, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if not is_device_or_folder(table):
                TemporaryFile(dir=table.resolve().parent).close()
    if pages:
        with _refusing(pages, "--pages"):
            there = next((path for path in (pages, *pages.parents) if path.exists()), pages)
            TemporaryFile(dir=there).close()


@contextmanager
def _refusing(path: Path, flag: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", f"Choose another {flag}.") from None


def _positive(flag: str, value: float) -> float:
    if not value > 0:
        raise ConfigError(f"{flag} {value:g} is not above 0")
    return value


def _warn(checked: "Checked", sentences: "Words") -> bool:
    """Say once what did not protect the machine."""
    for answer in checked.answers:
        if not answer.isolated:
            text.warn(sentences("grade.open", why=answer.refusal))
            return True
    return False


def _show(grade: "Grade", sentences: "Words", *, alone: bool) -> None:
    """The verdict on each task, and the mark."""
    if not alone:
        mark = f"{grade.percent:.0f} %" if grade.marked else sentences("check.not_marked")
        text.show(text.bold(f"{grade.name}  {mark}"))
    for task in grade.tasks:
        text.show(f"{sentences(f'check.{task.word}')}  {task.file}: {task.name}")
        for sentence in task.sentences:
            text.show(f"  {sentence}")
    text.show(
        sentences("check.summary", marks=grade.summary(sentences).replace("**", ""), folder=grade.folder)
    )


def _write(number: str, flags: CheckFlags, grades: "Sequence[Grade]", sentences: "Words") -> None:
    """The table and the pages that were asked for, also of the folders that were finished before Ctrl-C."""
    from shoal.kit.runs import write_whole
    from shoal_labs.check.pages import to_csv, write_pages

    if not grades:
        return
    if flags.csv:
        table = to_csv(grades)
        with _refusing(flags.csv, "--csv"):
            if is_device_or_folder(flags.csv):
                flags.csv.write_text(table, encoding="utf-8")
            else:
                write_whole(flags.csv.resolve(), table)  # resolved: a link stays a link
    if flags.pages:
        for path in write_pages(flags.pages, number, grades, sentences):
            text.warn(str(path))


CHECK = Command("lab check", _check, CheckFlags, words="LAB [DIR …]")
