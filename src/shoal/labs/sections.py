"""Pieces that the report of every lab has: how it begins, the machine it ran on, tables, code from its source."""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence

from shoal.labs.regions import without_linter_marks
from shoal.labs.words import Words
from shoal.report.document import Block, Code, Paragraph, Table

PAGE_COLUMNS = 88
"""Letters of code that fit beside each other on the page."""


def opening(quick: bool, command: str, words: Words) -> list[Block]:
    """What the report is, whose code it is about, and the command that made it."""
    return [
        Paragraph(words("intro.quick" if quick else "intro.full")),
        Paragraph(words("intro.whose")),
        Code(command, language="sh"),
    ]


def machine_table(facts: Mapping[str, str], words: Words) -> Table:
    """What `machine()` told, and what else the lab has to say of it."""
    rows = [[words(f"machine.{key}"), value] for key, value in facts.items()]
    return Table(words("setup.machine"), [words("setup.item"), words("setup.value")], rows)


def header_of(section: str, columns: Sequence[str], words: Words) -> list[str]:
    """The header of a table whose columns' words are `<section>.<column>_column`."""
    return [words(f"{section}.{column}_column") for column in columns]


def number_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table whose first column names the row and whose others hold numbers."""
    return Table(caption, header, rows, frozenset(range(1, len(header))))


def folded(text: str) -> str:
    """Lines that fit on the page."""
    return "\n".join(textwrap.fill(line, PAGE_COLUMNS, subsequent_indent="  ") for line in text.splitlines())


def source(function: Callable[..., object] | type) -> str:
    """The code of a function, as it stands in the installed package."""
    return without_linter_marks(textwrap.dedent(inspect.getsource(function)))
