"""The table of a repeated comparison: a row for each variant and setting, for a terminal, a page and LaTeX."""

from collections.abc import Iterator
from functools import reduce

from shoal.compare.remark import listed
from shoal.compare.repeated.rows import Row, Rows
from shoal.report.student import Interval
from shoal.words import Words

COLUMNS = ("run", "validation", "test", "difference", "verdict", "time", "sent")
"""The columns; validation and test are there only if some row has them, difference and verdict with several rows."""
TUNED = " †"
"""Behind the name of a row whose settings were chosen on the validation set."""


def row_table(rows: Rows, words: Words) -> tuple[list[str], list[list[str]]]:
    """Header, and a row for each variant and setting; those that failed come last, without numbers."""
    cells = [_cells(row, rows, words) for row in rows.rows]
    shown = [column for column in COLUMNS if any(each[column] != "–" for each in cells)]
    names = {"reference": rows.reference.name}
    of_measure = {split: f"repeated.{split}_{rows.measure.key}" for split in ("validation", "test")}
    header = [words(of_measure.get(column, f"repeated.column.{column}"), **names) for column in shown]
    failed = [[each.name, *["–"] * (len(shown) - 1)] for each in rows.failed]
    return header, [*([each[column] for column in shown] for each in cells), *failed]


def row_legend(rows: Rows, words: Words) -> str:
    """What the numbers are, and what the mark means."""
    sentences = [
        words("repeated.legend.seeds" if rows.seeds > 1 else "repeated.legend.seed", count=rows.seeds)
    ]
    if len(rows.rows) > 1:
        sentences.append(
            words("repeated.legend.difference", reference=rows.reference.name, split=_split(rows, words))
        )
    if rows.failed:
        sentences.append(words("repeated.legend.failed"))
    if rows.tuned:
        sentences.append(words("repeated.legend.tuned", mark=TUNED.strip()))
    return reduce(lambda first, last: words("join.sentences", first=first, last=last), sentences)


def row_notes(rows: Rows, words: Words) -> list[str]:
    """What a reader needs before the numbers."""
    return list(_notes(rows, words))


def _notes(rows: Rows, words: Words) -> Iterator[str]:
    for each in rows.failed:
        yield words("repeated.note.failed", name=each.run, why=each.reason)
    if not any(row.result("validation") for row in rows.rows):
        yield words("repeated.note.validation")
    delayed = [row.name for row in rows.rows if row.was_delayed]
    if delayed:
        all_or_some = "all" if len(delayed) == len(rows.rows) else "some"
        yield words(f"busy.{all_or_some}", names=listed(delayed, words))
    fewer = [row.name for row in rows.rows if len(row.runs) < rows.seeds]
    if fewer:
        yield words("repeated.note.fewer", names=listed(fewer, words), count=rows.seeds)


def _split(rows: Rows, words: Words) -> str:
    return words(f"repeated.{rows.split}")


def _cells(row: Row, rows: Rows, words: Words) -> dict[str, str]:
    measure, difference = row.measure, rows.difference(row)
    judged = rows.verdict(row)
    return {
        "run": row.name + TUNED * any(row is each for each in rows.tuned),
        "validation": _shown(row.result("validation"), measure.spec),
        "test": _shown(row.result("test"), measure.spec),
        "difference": _shown(difference, f"+{measure.spec}"),
        "verdict": "–" if judged == "unknown" or len(rows.rows) == 1 else words(f"repeated.verdict.{judged}"),
        "time": _shown(row.seconds, ".2f"),
        "sent": "–" if row.sent_bytes is None else f"{row.sent_bytes / 1e6:.1f}",
    }


def _shown(interval: Interval | None, spec: str) -> str:
    return "–" if interval is None else format(interval, spec)
