"""A table as data: the page shows its cells by formats, programs get the same cells as CSV with a number per cell."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from shoal.kit.base import Phrase
from shoal.kit.findings import Measured
from shoal.kit.page import Records
from shoal_labs.numbers import scientific
from shoal_labs.words import Words

Cell = Measured | float | int | str | bool | Phrase | Sequence[str | Phrase | float] | None
"""None is shown as a dash, several numbers with slashes between them."""


@dataclass(frozen=True)
class PageTable:
    """Rows of values under the columns' names for programs; the page's template has the names for readers."""

    columns: Mapping[str, str]
    """How the page writes each column, such as ".2f" or "sci"; empty for text, which stands to the left."""
    rows: Sequence[Sequence[Cell]]
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the caption; in the CSV they are columns before the others, where a name has several tables."""
    chosen: frozenset[int] = frozenset()
    """The rows in bold; the CSV has a column that says so."""

    @property
    def right(self) -> frozenset[int]:
        """The columns of numbers."""
        return frozenset(place for place, spec in enumerate(self.columns.values()) if spec)

    def shown(self, number: int, words: Words) -> list[str]:
        """A row as the page shows it."""
        cells = zip(self.rows[number], self.columns.values(), strict=True)
        texts = [cell(value, spec, words) for value, spec in cells]
        return [f"**{text}**" for text in texts] if number in self.chosen else texts


def cell(value: Any, spec: str, words: Words) -> str:
    """A value in the page's language."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return words("answer.yes" if value else "answer.no")
    if isinstance(value, list | tuple) and spec:
        return " / ".join(cell(each, spec, words) for each in cast(Sequence[Any], value))
    if isinstance(value, Phrase | list | tuple):
        return words.shown(value)
    if isinstance(value, str):
        return value
    if spec == "sci" or (isinstance(value, float) and math.isinf(value)):
        return scientific(value)
    return format(value, spec)


def spread(value: object) -> float | str:
    """How much a number scatters, for programs: empty where that is unknown."""
    return value.spread if isinstance(value, Measured) and value.basis != "none" else ""


def records(tables: PageTable | Sequence[PageTable]) -> Records:
    """The tables of a name for programs: one number in each cell, what a number scatters in a column beside it."""
    if isinstance(tables, PageTable):
        return list(_records(tables, {}))
    return [record for table in tables for record in _records(table, table.values)]


def _records(table: PageTable, first: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    scattered = {
        name
        for row in table.rows
        for name, value in zip(table.columns, row, strict=True)
        if isinstance(value, Measured)
    }
    several: dict[str, int] = {}
    for row in table.rows:
        for (name, spec), value in zip(table.columns.items(), row, strict=True):
            if spec and isinstance(value, list | tuple):
                several[name] = max(len(value), several.get(name, 0))
    for number, row in enumerate(table.rows):
        record: dict[str, object] = {name: str(value) for name, value in first.items()}
        for name, value in zip(table.columns, row, strict=True):
            if isinstance(value, Measured):
                record |= {name: value.value, f"{name} ±": spread(value)}
            elif name in several:
                given = cast(Sequence[Any], value or ())
                record |= {
                    f"{name}, {place}": part
                    for place, part in enumerate([*given, *[""] * (several[name] - len(given))])
                }
            elif isinstance(value, list | tuple):
                record[name] = ", ".join(map(str, cast(Sequence[Any], value)))
            else:
                record[name] = "" if value is None else str(value) if isinstance(value, Phrase) else value
                record |= {f"{name} ±": ""} if name in scattered else {}
        yield record | ({"chosen": number in table.chosen} if table.chosen else {})
