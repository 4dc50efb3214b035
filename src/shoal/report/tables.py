"""Tables for other programs: CSV with the units in the header."""

import csv
import io
from collections.abc import Sequence


def to_csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    r"""Rows under a header; cells are quoted where they must be.

    >>> to_csv(["optimizer", "seconds (s)"], [["gd", 1.5], ["sgd, plain", 2]])
    'optimizer,seconds (s)\ngd,1.5\n"sgd, plain",2\n'
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([header, *rows])
    return buffer.getvalue()
