"""Tables for a terminal, in any alphabet: a Chinese letter is two columns wide."""

import unicodedata
from collections.abc import Sequence


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
