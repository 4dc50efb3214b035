"""Plain tables: CSV for other programs, with the units in the header, and columns for a terminal in any alphabet."""

import csv
import io
import unicodedata
from collections.abc import Mapping, Sequence

Records = Sequence[Mapping[str, object]]
"""Rows of a table, each a mapping from column name (with its unit) to value."""


def to_csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    r"""Rows under a header; cells are quoted where CSV requires it.

    >>> to_csv(["optimizer", "seconds (s)"], [["gd", 1.5], ["sgd, plain", 2]])
    'optimizer,seconds (s)\ngd,1.5\n"sgd, plain",2\n'
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([header, *rows])
    return buffer.getvalue()


def records_to_csv(records: Records) -> str:
    r"""Records that all have the same columns.

    >>> records_to_csv([{"optimizer": "gd", "seconds (s)": 1.5}])
    'optimizer,seconds (s)\ngd,1.5\n'
    """
    header = list(records[0]) if records else []
    return to_csv(header, [[record[column] for column in header] for record in records])


def width(text: str) -> int:
    """Columns that a text takes.

    >>> width("loss 损失")
    9
    """
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Rows in columns, numbers to the right.

    >>> print(aligned(["name", "s"], [["gd", "1.5"]], right=frozenset({1})))
    name    s
    gd    1.5
    """
    table = [header, *rows]
    widths = [max(width(row[column]) for row in table) for column in range(len(header))]

    def padded(text: str, column: int) -> str:
        space = " " * (widths[column] - width(text))
        return space + text if column in right else text + space

    return "\n".join(
        "  ".join(padded(cell, column) for column, cell in enumerate(row)).rstrip() for row in table
    )
