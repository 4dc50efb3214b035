"""A comparison on a terminal: a short table and the most useful remarks, or every column and all remarks."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from shoal.compare import table
from shoal.compare.comparison import Comparison
from shoal.compare.remark import Remark, notes
from shoal.compare.repeated.rows import Rows
from shoal.compare.repeated.table import row_legend, row_notes, row_table
from shoal.compare.table import numbers_in
from shoal.printable import printable
from shoal.words import Words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Column = tuple[str, tuple[str, ...]]
WIDEST = 120
TEXT = {False: 80, True: 100}
"""The width of sentences, without --all and with it."""
MOST_REMARKS = 5
COLOURS = {"holds": "green", "fails": "red", "undecided": "magenta"}


def show(
    comparison: Comparison, remarks: Sequence[Remark], folder: Path, stream: TextIO, words: Words, every: bool
) -> None:
    """Table, legend, remarks, notes, and where the page is."""

    def shown(console: "Console") -> None:
        show_table(comparison, console, words, every)
        _show_remarks(remarks, console, words, every)
        _show_notes(notes(comparison, words), console, words, every)

    _show(shown, folder, stream)


def _show(shown: "Callable[[Console], None]", folder: Path, stream: TextIO) -> None:
    """What is shown between an empty line and the path of the page."""
    from rich.console import Console

    console = Console(file=stream, highlight=False, width=None if stream.isatty() else WIDEST)
    with console.capture() as captured:
        console.print()
        shown(console)
        console.print(f"\n{printable(str(folder / 'report.html'))}", markup=False, soft_wrap=True)
    # Rich pads lines with spaces, which do not belong in a file.
    stream.write("\n".join(line.rstrip() for line in captured.get().split("\n")))
    stream.flush()


def _show_notes(noted: Sequence[str], console: "Console", words: Words, every: bool) -> None:
    for note in noted:
        line = printable(words("note", note=note))
        console.print(line, markup=False, width=_text_width(console, every))


def show_table(comparison: Comparison, console: "Console", words: Words, every: bool) -> None:
    """One table, or several below each other if the terminal is too narrow for one."""
    _show_columns(*_columns_of(comparison, words, every), console, _text_width(console, every))


def show_rows(rows: Rows, folder: Path, stream: TextIO, words: Words) -> None:
    """The table of a repeated comparison, what it means, and where the page is."""
    names, *columns = _columns(*row_table(rows, words))

    def shown(console: "Console") -> None:
        _show_columns(
            names, columns, [columns], row_legend(rows, words), console, _text_width(console, False)
        )
        _show_notes(row_notes(rows, words), console, words, False)

    _show(shown, folder, stream)


def _show_columns(
    names: Column,
    together: list[Column],
    groups: list[list[Column]],
    legend: str,
    console: "Console",
    width: int,
) -> None:
    tables = [together]
    if not _fits([names, *together], console):
        tables = [part for group in groups for part in _narrowed(names, group, console)]
    for number, columns in enumerate(tables):
        console.print(*[""] * bool(number), _table([names, *columns]), sep="\n")
    console.print(f"\n{legend}\n", style="dim", markup=False, width=width)


Columns = tuple[Column, list[Column], list[list[Column]], str]
"""The names of the runs; the other columns, in one table and in groups for several; what they mean."""


def _columns_of(comparison: Comparison, words: Words, every: bool) -> Columns:
    if not every:
        names, *columns = _columns(*table.short_table(comparison, words))
        return names, columns, [columns], table.short_legend(comparison, words)
    names, *results = _columns(*table.full_table(comparison, words))
    metrics = _columns(table.metric_names(comparison), table.metric_rows(comparison))
    shares = _columns(*table.share_table(comparison, words))
    times, equality = results[: table.EQUALITY_AT - 1], results[table.EQUALITY_AT - 1 :]
    legend = words("join.sentences", first=table.legend(comparison, words), last=words("legend.shares"))
    before = table.SHARES_AT - 1
    together = [*results[:before], *shares, *results[before:], *metrics]
    return names, together, [times, [*equality, *shares, *metrics]], legend


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Column]:
    return list(zip(header, zip(*rows, strict=True), strict=True))


def _narrowed(names: Column, columns: Sequence[Column], console: "Console") -> Iterator[list[Column]]:
    """As many columns as fit beside the names of the runs, and at least one, for each of several tables."""
    taken = [columns[0]]
    for column in columns[1:]:
        if not _fits([names, *taken, column], console):
            yield taken
            taken = []
        taken.append(column)
    yield taken


def _fits(columns: Sequence[Column], console: "Console") -> bool:
    unlimited = console.options.update(width=1000)
    return console.measure(_table(columns), options=unlimited).maximum <= console.width


def _table(columns: Sequence[Column]) -> "Table":
    """Words left-aligned, numbers right-aligned; a header breaks before its last word or a Chinese bracket."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), show_edge=False, header_style="bold"
    )
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    right = numbers_in(rows)
    for number, (name, _) in enumerate(columns):
        header = "\n".join(re.split(r" (?=[^ ]*$)|(?=（)", name, maxsplit=1))
        justify = "right" if number in right else "left"
        table.add_column(header, justify=justify, no_wrap=number > 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _text_width(console: "Console", every: bool) -> int:
    return min(console.width, TEXT[every])


def _show_remarks(remarks: Sequence[Remark], console: "Console", words: Words, every: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for remark in remarks if every else remarks[:MOST_REMARKS]:
        advice = f"\n→ {escape(printable(remark.advice))}" if remark.advice else ""
        claim = f"[bold]{escape(printable(remark.claim))}[/bold]"
        shown = words("join.sentences", first=claim, last=escape(printable(remark.numbers)))
        grid.add_row(f"[{COLOURS[remark.tone]}]{remark.word}[/]", shown + advice)
    console.print(grid, width=_text_width(console, every))
