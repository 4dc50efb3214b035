"""A page for each student: the mark, the verdict on each task, and what is wrong with it."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from shoal.report.document import Block, Bullets, Document, Heading, Paragraph, Table
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal_labs.check.grade.marks import Grade, TaskMark
from shoal_labs.words import Words


def write_pages(folder: Path, number: str, grades: Sequence[Grade], words: Words) -> list[Path]:
    """A page for each student, named after the folder."""
    files = {
        PurePosixPath(f"{each.name}.html"): to_html(student_page(number, each, words)) for each in grades
    }
    write_files(folder, files)
    return [folder / name for name in files]


def student_page(number: str, grade: Grade, words: Words) -> Document:
    """The page of one folder."""
    blocks: list[Block] = [
        Paragraph(grade.summary(words) if grade.marked else words("check.not_marked")),
        Table(
            words("grade.marks"),
            [words(f"grade.{key}") for key in ("task", "file", "verdict", "points", "weight")],
            [_row(task, words) for task in grade.tasks],
            frozenset({3, 4}),
        ),
        *(block for task in grade.tasks if task.sentences for block in _faults(task, words)),
        Paragraph(words("grade.how", number=number)),
    ]
    return Document(words("grade.title", number=number, name=grade.name), words.lang, blocks)


def _row(task: TaskMark, words: Words) -> list[str]:
    return [
        task.name,
        task.file,
        words(f"check.{task.word}"),
        f"{task.mark:.3g}",
        f"{task.weight:.3g}",
    ]


def _faults(task: TaskMark, words: Words) -> list[Block]:
    title = words("grade.faults", tasks=[task.name], verdict=words(f"check.{task.word}"))
    return [Heading(title, level=3), Bullets(task.sentences)]
