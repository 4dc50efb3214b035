"""`shoal compare`: the same training by several strategies: one table, a verdict, a report."""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from shoal.compare.comparison import Comparison
    from shoal.compare.remark import Remark
    from shoal.words import Words

Column = tuple[str, tuple[str, ...]]
WIDEST = 120
COLOURS = {"holds": "green", "fails": "red", "undecided": "magenta"}


@dataclass(frozen=True)
class CompareFlags(Flags):
    """Where the report goes, and what is shown."""

    out: Path | None = None
    """Folder of the report and its runs (default reports/compare-TIME)."""
    runs: Path | None = None
    """Folder of an earlier comparison: reuse its finished runs, and train only the rest."""
    lang: Literal["en", "zh"] = "en"
    """Language of the table, the verdict and the report."""
    trust_code: bool = False
    """Run your own functions (package.module:function) that the recipes name."""
    json: bool = False
    """Print the result as one line of JSON; everything else goes to standard error."""
    quiet: bool = False
    """Show no progress, only the table, the verdict and the path."""


def run(given: Given[CompareFlags]) -> int:
    """Train the same model by several strategies: one table, a verdict, a report.

        shoal compare quickstart      the same training by every strategy
        shoal compare mine.toml       your own recipe, by every strategy
        shoal compare a.toml b.toml   several recipes, as they are
        shoal compare runs/*          finished runs; nothing is trained

    Flags of `shoal train` apply to every run that is trained (--epochs 3); those of the launcher (--workers 4) only to
    runs with several workers. A TOML file with a table [variants], each a name and its flags, defines your own
    comparison. If no variant is `single` with the workers' number of threads, that run is added: all others should
    equal it.
    """
    flags = given.flags
    stream = sys.stderr if flags.json else sys.stdout

    from shoal.api.compare import are_runs, judged, train_all
    from shoal.compare.earlier import earlier_runs
    from shoal.compare.variants import variants_of
    from shoal.labs.folder import claimed, report_folder
    from shoal.labs.words import load_words
    from shoal.training.stop import Series

    words = load_words("shoal.compare", flags.lang)
    finished = are_runs(given.words, [*given.settings, *(["--runs"] if flags.runs else [])])
    variants = [] if finished else variants_of(given.words, given.settings, flags.trust_code)
    earlier = earlier_runs(flags.runs) if flags.runs else None
    folder = report_folder(str(flags.out or ""), "compare")
    with Series(), claimed(folder):
        if finished:
            runs = [Path(name) for name in given.words]
        else:
            try:
                runs = train_all(variants, folder / "runs", earlier, stream, flags.quiet, words, text.warn)
            except KeyboardInterrupt:
                text.warn(words("progress.stopped", command=_again(given, folder / "runs", earlier)))
                raise
        command = shlex.join(["shoal", "compare", *given.argv])
        comparison, remarks = judged(runs, folder, command, words, trained=not finished)
    _show(comparison, remarks, folder, stream, words)
    if flags.json:
        text.show(_as_json(comparison, remarks, folder, words))
    return 0


def _again(given: Given[CompareFlags], runs: Path, earlier: Path | None) -> str:
    """The command that makes the rest of an interrupted comparison. --out is left out: that folder is in use now."""
    from shoal.compare.earlier import to_continue_from

    flags = given.flags
    again = ["shoal", "compare", *given.words, *given.settings]
    again += [
        f"--{name.replace('_', '-')}" for name in ("trust_code", "json", "quiet") if getattr(flags, name)
    ]
    again += ["--lang", flags.lang] if flags.lang != CompareFlags.lang else []
    finished = to_continue_from(runs, earlier) or flags.runs
    return shlex.join([*again, *(["--runs", str(finished)] if finished else [])])


def _show(
    comparison: "Comparison", remarks: "Sequence[Remark]", folder: Path, stream: TextIO, words: "Words"
) -> None:
    from rich.console import Console

    from shoal.compare.remark import notes

    console = Console(file=stream, highlight=False, width=None if stream.isatty() else WIDEST)
    with console.capture() as shown:
        console.print()
        _show_table(comparison, console, words)
        _show_verdict(remarks, console, words)
        for note in notes(comparison, words):
            line = printable(words("note", note=note))
            console.print(line, markup=False, width=_text_width(console))
        console.print(f"\n{printable(str(folder / 'report.html'))}", markup=False, soft_wrap=True)
    # Rich pads lines with spaces, which do not belong in a file.
    stream.write("\n".join(line.rstrip() for line in shown.get().split("\n")))
    stream.flush()


def _show_table(comparison: "Comparison", console: "Console", words: "Words") -> None:
    """One table, or several below each other if the terminal is too narrow for one."""
    from shoal.compare import table

    names, *results = _columns(table.header(words), table.table_rows(comparison, words))
    metrics = _columns(table.metric_names(comparison), table.metric_rows(comparison))
    shares = _columns(table.share_header(comparison, words), table.share_rows(comparison))
    before = table.SHARES_AT - 1
    tables = [[*results[:before], *shares, *results[before:], *metrics]]
    if not _fits([names, *tables[0]], console):
        times, equality = results[: table.EQUALITY_AT - 1], results[table.EQUALITY_AT - 1 :]
        tables = [
            *_narrowed(names, times, console),
            *_narrowed(names, [*equality, *shares, *metrics], console),
        ]
    for number, columns in enumerate(tables):
        console.print(*[""] * bool(number), _table([names, *columns]), sep="\n")
    legend = words("join.sentences", first=table.legend(comparison, words), last=words("legend.shares"))
    console.print(f"\n{legend}\n", style="dim", markup=False, width=_text_width(console))


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
    """Names left-aligned, numbers right-aligned; a header breaks before its last word or a Chinese bracket."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), show_edge=False, header_style="bold"
    )
    for number, (name, _) in enumerate(columns):
        header = "\n".join(re.split(r" (?=[^ ]*$)|(?=（)", name, maxsplit=1))
        table.add_column(header, justify="right" if number else "left", no_wrap=number > 0, overflow="fold")
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _text_width(console: "Console") -> int:
    return min(console.width, 100)


def _show_verdict(remarks: "Sequence[Remark]", console: "Console", words: "Words") -> None:
    from rich.markup import escape
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for remark in remarks:
        advice = f"\n→ {escape(printable(remark.advice))}" if remark.advice else ""
        claim = f"[bold]{escape(printable(remark.claim))}[/bold]"
        shown = words("join.sentences", first=claim, last=escape(printable(remark.numbers)))
        grid.add_row(f"[{COLOURS[remark.tone]}]{remark.word}[/]", shown + advice)
    console.print(grid, width=_text_width(console))


def _as_json(comparison: "Comparison", remarks: "Sequence[Remark]", folder: Path, words: "Words") -> str:
    from shoal.compare.remark import notes
    from shoal.compare.table import as_data

    return json.dumps(
        {
            "runs": [as_data(entry, comparison, words) for entry in comparison.entries],
            "verdict": [vars(remark) for remark in remarks],
            "notes": notes(comparison, words),
            "report": str(folder / "report.html"),
        }
    )


COMMAND = Command("compare", run, CompareFlags, words="RECIPE|RUN …", settings=("*",))
