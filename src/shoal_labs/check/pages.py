"""What a teacher gets from the marks: a table for a spreadsheet, a page for each student, and one about the class."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from shoal.kit.base import printable
from shoal.kit.figures import COLOURS, PAGE_IN, Drawing, axes_of, font_for, painted
from shoal.kit.page import (
    Block,
    Bullets,
    Document,
    Figure,
    Heading,
    Link,
    Links,
    Paragraph,
    Table,
    records_to_csv,
    to_html,
    write_files,
)
from shoal_labs.check.marks import Grade, TaskMark
from shoal_labs.words import Words

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would compute a cell that begins with one of these."""
VERDICTS = ("right", "partly", "wrong", "open", "not_asked")
BAND = 10
"""Percent: students are counted by marks of 100, 90 to 99, 80 to 89, …"""
MOST_ERRORS = 15
"""Rows of the table of errors."""
BAR_IN, EDGES_IN = 0.27, 0.3
"""Height of a bar's row, and of the edges of the figure."""


def write_pages(folder: Path, number: str, grades: Sequence[Grade], words: Words) -> list[Path]:
    """A page for each student, named after the folder; for several students also one about all, the last of them."""
    pages = {each.name: student_page(number, each, words) for each in grades}
    if len(grades) > 1:
        # No student's page may have this name, where a file system ignores case.
        taken, name = {each.casefold() for each in pages}, "index"
        while name in taken:
            name += "-"
        pages[name] = class_page(number, grades, words)
    files = {PurePosixPath(f"{name}.html"): to_html(page) for name, page in pages.items()}
    write_files(folder, files)
    return [folder / name for name in files]


def student_page(number: str, grade: Grade, words: Words) -> Document:
    """The page of one folder: the marks, then each task: its question, its verdict, what is wrong."""
    blocks: list[Block] = [
        Paragraph(grade.summary(words) if grade.marked else words("check.not_marked")),
        Table(
            words("grade.marks"),
            [words(f"grade.{key}") for key in ("task", "verdict", "points", "weight")],
            [[task.name, *_verdict(task, words)] for task in grade.tasks],
            frozenset({2, 3}),
        ),
        Heading(words("grade.tasks")),
    ]
    for task in grade.tasks:
        verdict = words(f"check.{task.word}")
        blocks.append(Heading(words("grade.asked", task=task.name, verdict=verdict), level=3))
        blocks.append(Paragraph(words("grade.asks", file=task.file, sentence=task.asks)))
        blocks += [Bullets(task.sentences)] if task.sentences else []
    blocks.append(Paragraph(words("grade.how", number=number)))
    return Document(words("grade.title", number=number, name=grade.name), words.lang, blocks)


def _verdict(task: TaskMark, words: Words) -> list[str]:
    return [words(f"check.{task.word}"), f"{task.mark:.3g}", f"{task.weight:.3g}"]


def class_page(number: str, grades: Sequence[Grade], words: Words) -> Document:
    """The page about all folders: how the marks are distributed, which errors are frequent, a link to each student."""
    marked = [each for each in grades if each.marked]
    right, unmarked = sum(each.all_right for each in marked), len(grades) - len(marked)
    blocks: list[Block] = []
    if marked:
        middle = f"{median(each.percent for each in marked):.0f}"
        blocks += [
            Paragraph(words("grade.class_summary", students=len(grades), median=middle, right=right)),
            _distribution(marked, words),
            _by_task(marked, words),
        ]
    if unmarked:
        blocks.append(Paragraph(words("grade.class_unmarked", count=unmarked)))
    if errors := _errors(marked):
        header = [words(f"grade.{key}") for key in ("count", "task", "error")]
        blocks.append(Table(words("grade.errors"), header, errors, frozenset({0})))
    links = [
        Link(
            each.name, f"{each.name}.html", each.summary(words) if each.marked else words("check.not_marked")
        )
        for each in grades
    ]
    blocks += [Heading(words("grade.students")), Links(links)]
    return Document(words("grade.class_title", number=number), words.lang, blocks)


def _distribution(marked: Sequence[Grade], words: Words) -> Figure:
    """Bars: how many students have a mark of 100 %, of 90 to 99 %, and so on."""
    bands = Counter(int(each.percent + 0.5) // BAND for each in marked)
    counts = {
        f"{BAND * band}" if band == 100 // BAND else f"{BAND * band}–{BAND * band + BAND - 1}": bands[band]
        for band in range(100 // BAND, min(bands) - 1, -1)
    }
    drawn = draw_counts(
        {words("grade.band", marks=marks): count for marks, count in counts.items()}, words.lang
    )
    listed = [words("grade.in_band", marks=marks, count=count) for marks, count in counts.items() if count]
    return Figure(
        PurePosixPath("marks.png"),
        drawn.wide_svg,
        words("grade.distribution"),
        words.listed(listed),
        drawn.narrow_svg,
    )


def draw_counts(counts: dict[str, int], lang: str) -> Drawing:
    """A bar for each count, with its number at its end."""

    def paint(figure: Any, columns: int) -> None:
        (axis,) = axes_of(figure, 1, columns)
        bars = axis.barh(list(counts), list(counts.values()), height=0.72, color=COLOURS["blue"])
        axis.bar_label(bars, labels=[f"{count}" if count else "" for count in counts.values()], padding=4)
        axis.invert_yaxis()
        axis.set_xlim(0, 1.08 * max(counts.values()))
        axis.set_xticks([])
        axis.spines["bottom"].set_visible(False)
        axis.tick_params(axis="y", length=0)

    def height(columns: int, width_in: float) -> float:
        return BAR_IN * len(counts) + EDGES_IN

    return painted(paint, height, 1, PAGE_IN, font_for(lang))


def _by_task(marked: Sequence[Grade], words: Words) -> Table:
    """How many students have each verdict, task by task."""
    names = [task.name for task in marked[0].tasks]
    given = {
        name: Counter(task.word for each in marked for task in each.tasks if task.name == name)
        for name in names
    }
    verdicts = [word for word in VERDICTS if any(counts[word] for counts in given.values())]
    header = [words("grade.task"), *(words(f"check.{word}") for word in verdicts)]
    rows = [[name, *(str(given[name][word]) for word in verdicts)] for name in names]
    return Table(words("grade.by_task"), header, rows, frozenset(range(1, len(header))))


def _errors(marked: Sequence[Grade]) -> list[list[str]]:
    """The most frequent errors: how many students have each, its task, and its sentence as most of them get it."""
    said: dict[tuple[str, str], Counter[str]] = {}
    for task in (task for each in marked for task in each.tasks if task.word in ("wrong", "partly")):
        # A sentence with a colon at its end is the head of those after it.
        for key, sentence in dict(zip(task.keys, task.sentences, strict=True)).items():
            if not sentence.endswith((":", "：")):
                said.setdefault((task.name, key), Counter())[sentence] += 1
    found = sorted(said.items(), key=lambda each: -each[1].total())[:MOST_ERRORS]
    return [[str(sentences.total()), task, sentences.most_common(1)[0][0]] for (task, _), sentences in found]


def to_csv(grades: Sequence[Grade]) -> str:
    """A row for each folder: the mark, the verdict and the points of each task, and what is wrong."""
    rows: list[dict[str, object]] = []
    for each in grades:
        row: dict[str, object] = {
            "student": _text(each.name),
            "mark (%)": f"{each.percent:.1f}" if each.marked else "not_marked",
            "points": f"{each.mark:.3g}" if each.marked else "",
            "of": f"{each.most:.3g}",
        }
        for task in each.tasks:
            row[task.name] = task.word
            row[f"{task.name} (points)"] = f"{task.mark:.3g}"
        wrong = [f"{task.name}: {sentence}" for task in each.tasks for sentence in task.sentences]
        rows.append({**row, "faults": _text(" | ".join(wrong)), "folder": _text(printable(str(each.folder)))})
    # Spreadsheets know by the mark at the start that the file is in UTF-8.
    return "\ufeff" + records_to_csv(rows)


def _text(text: str) -> str:
    """Text of others, which stays text in a spreadsheet.

    >>> _text("=1+1"), _text("an")
    ("'=1+1", 'an')
    """
    return f"'{text}" if text.startswith(FORMULA) else text
