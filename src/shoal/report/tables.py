"""Tables for other programs: CSV with the units in the header."""

import csv
import io
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
