"""A student's folder for one lab, and what `shoal lab check` says about its tasks."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from shoal.kit.base import ConfigError, ShoalError
from shoal_labs.check.fault import Fault
from shoal_labs.check.solution import check_folders, find_file
from shoal_labs.check.student import code_files
from shoal_labs.words import Words

CANNOT_RUN = frozenset(
    {"raises", "too_long", "died", "over_memory", "over_processes", "no_file", "waits", "order", "count"}
)
"""Faults with which a run would stop or never end."""


@dataclass(frozen=True)
class Submission:
    """The folder, and the files whose code the lab's experiment runs."""

    number: str
    folder: Path
    file: Path
    also: tuple[Path, ...] = ()
    """Files with tasks that `file` imports."""

    @property
    def sources(self) -> dict[str, str]:
        """The code, as the page shows it, by the name of the file."""
        files = (self.file, *self.also)
        return {path.name: path.read_text(encoding="utf-8", errors="replace") for path in files}

    @property
    def fingerprint(self) -> str:
        """Differs where the code of the folder differs: runs of other code are not this code's."""
        return sha256(b"\0".join(path.read_bytes() for path in code_files(self.file.parent))).hexdigest()[:16]


def read_submission(number: str, folder: Path, file: str, also: Sequence[str] = ()) -> Submission:
    """The student's folder; a ConfigError where the file is missing. Those of `also` may be."""
    if not folder.is_dir():
        raise ConfigError(f"--solution {folder} is not a folder", "Give the folder with your files.")
    found = find_file(number, folder, file)
    if found is None:
        raise ConfigError(
            f"there is no {file} in {folder.resolve()}", f"`shoal lab start {number}` writes its skeleton."
        )
    found = found.resolve()
    beside = tuple(each for each in map(found.parent.joinpath, also) if each.is_file())
    return Submission(number, folder.resolve(), found, beside)


@dataclass(frozen=True)
class TaskVerdict:
    """What the check says about some tasks."""

    tasks: tuple[str, ...]
    word: Literal["right", "wrong", "open"]
    why: str
    """The sentences on what is wrong; empty where it is right."""
    stops: bool = False
    """Whether code that uses it would stop with an error, or never end."""
    because: str = ""
    """The same as a reason at the end of a paragraph."""


def check_submission(submission: Submission, words: Words) -> tuple[TaskVerdict, ...]:
    """Check every task in a sandbox, as `shoal lab check` does; tasks that need not be done are left out."""
    (checked,) = check_folders(submission.number, [submission.folder])
    found: list[TaskVerdict] = []
    for verdict in checked.verdicts:
        if verdict.counts:
            why = joined(in_words(verdict.faults, words), words)
            stops = any(fault.key in CANNOT_RUN for fault in verdict.faults)
            if verdict.word == "not_marked":
                raise ShoalError(
                    f"{submission.folder} cannot be checked: {why}", "Are all its files readable?"
                )
            found.append(
                TaskVerdict(
                    (verdict.task,),
                    "wrong" if verdict.word == "partly" else verdict.word,
                    why,
                    stops,
                    because(why, words),
                )
            )
    return tuple(found)


def in_words(faults: Iterable[Fault], words: Words) -> list[str]:
    """The sentences of faults."""
    return [words(f"check.{fault.key}", **fault.values) for fault in faults]


def joined(sentences: Sequence[str], words: Words) -> str:
    """Several sentences of the check as one; after a colon the next one follows at once."""
    text = words("own.between").join(sentences)
    return text.replace(f":{words('own.between')}", ": ").replace(f"：{words('own.between')}", "：")


def because(why: str, words: Words) -> str:
    """What the check says, as a reason at the end of a paragraph; nothing where it says nothing."""
    reason = words("own.because", why=why) if why else ""
    return reason[:-1] if reason[-2:-1] in ("?", "？") else reason  # a question has its mark already


def verdicts_on(tasks: Collection[str], verdicts: Iterable[TaskVerdict]) -> list[TaskVerdict]:
    """The verdicts on any of these tasks."""
    return [verdict for verdict in verdicts if set(verdict.tasks) & set(tasks)]


def why_wrong(tasks: Collection[str], verdicts: Iterable[TaskVerdict]) -> str:
    """What the check finds wrong with these tasks, as a reason; empty for nothing."""
    return "".join(each.because for each in verdicts_on(tasks, verdicts))
