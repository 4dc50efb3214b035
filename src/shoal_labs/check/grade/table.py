"""The marks of all folders as a table for a spreadsheet."""

from collections.abc import Sequence

from shoal.printable import printable
from shoal.report.plain_tables import records_to_csv
from shoal_labs.check.grade.marks import Grade

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would compute a cell that begins with one of these."""


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
