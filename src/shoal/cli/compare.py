"""`shoal compare`: the same training in several ways, side by side, with a verdict and a report."""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from shoal.cli import text
from shoal.cli.options import split_options
from shoal.errors import ConfigError, ShoalError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from shoal.compare.comparison import Comparison
    from shoal.compare.variants import Variant
    from shoal.compare.verdict import Remark

USAGE = "shoal compare RECIPE … | RUN … [--out DIR] [--json] [--quiet] [flags of shoal train]"
HELP = f"""Usage: {USAGE}

  shoal compare quickstart             the same training by every strategy: one table, a verdict, a report
  shoal compare mine.toml              a recipe of your own, by every strategy
  shoal compare a.toml b.toml          several recipes, as they are
  shoal compare runs/*                 runs that are finished: nothing is trained

Flags of `shoal train` go over all that is trained (--epochs 3); those of the launcher (--workers 4) over what has
several workers. A TOML file with a table [variants], a name and flags each, is a comparison of your own.

  --out DIR      folder of the report and its runs (default: reports/compare-TIME)
  --json         print one JSON line last; everything else goes to standard error
  --quiet        no progress: the table, the verdict and the path alone"""

WIDEST = 120
COLOURS = {"holds": "green", "fails": "red", "undecided": "magenta"}


def run(argv: Sequence[str]) -> int:
    """Train what is to be trained, compare, and tell; the report is written before anything is shown."""
    options, words = split_options(argv, switches=("--help", "-h", "--json", "--quiet"), values=("--out",))
    if options.has("--help", "-h"):
        text.page(HELP)
        return 0
    names, flags = _names_and_flags(words)
    stream = sys.stderr if options.has("--json") else sys.stdout
    are_runs = any(Path(name).is_dir() for name in names)
    variants = [] if are_runs else _variants(names, flags)

    from shoal.labs.folder import claimed, report_folder

    folder = report_folder(options.value("--out") or "", "compare")
    with claimed(folder):
        if are_runs:
            runs = [Path(name) for name in names]
        else:
            runs = _train(variants, folder / "runs", stream, options.has("--quiet"))
        comparison, remarks = _compare(
            runs, folder, shlex.join(["shoal", "compare", *argv]), trained=not are_runs
        )
    _show(comparison, remarks, folder, stream)
    if options.has("--json"):
        text.show(_as_json(comparison, remarks, folder))
    return 0


def _names_and_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What to compare, and the flags over it; nothing, one run, or flags over finished runs are refused."""
    count = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    names, flags = list(words[:count]), list(words[count:])
    folders = [name for name in names if Path(name).is_dir()]
    if not names:
        raise ConfigError("nothing to compare: name a recipe, or run folders", f"Usage: {USAGE}")
    for name in names if folders else ():
        if not (Path(name) / "config.toml").exists():
            hint = (
                f"Are there any in it? shoal compare {name}/*"
                if name in folders
                else "Compare recipes apart."
            )
            raise ConfigError(f"{name} is not a run folder", hint)
    if folders and len(names) == 1:
        raise ConfigError(f"{names[0]} is one run, and there is nothing to compare it with")
    if folders and flags:
        raise ConfigError(f"{flags[0]} has no use here: run folders are compared, and not trained again")
    return names, flags


def _variants(names: Sequence[str], flags: Sequence[str]) -> "list[Variant]":
    from shoal.compare.variants import variants_of

    return variants_of(names, flags)


def _train(variants: "Sequence[Variant]", folder: Path, stream: TextIO, quiet: bool) -> list[Path]:
    """Train one variant after another. Whatever stops it, what is finished stays, and can be compared."""
    from shoal.compare.table import described
    from shoal.compare.variants import train
    from shoal.labs.watch import watch_for

    finished: list[Path] = []
    width = max(len(variant.name) for variant in variants)
    try:
        with watch_for(stream, quiet) as watch:
            watch.say(f"{len(variants)} runs, one after another; a line for each when it is done")
            for number, variant in enumerate(variants, 1):
                label = f"{number}/{len(variants)}  {variant.name:{width}}"
                result = train(variant, folder, watch.running(f"  {label}  {described(variant.config)}"))
                finished.append(folder / variant.name)
                watch.say(f"  {label}  {result.seconds:5.1f} s  {described(variant.config)}")
    except (KeyboardInterrupt, ShoalError):
        if finished:
            text.warn(
                f"finished until here: {finished[0]}"
                if len(finished) == 1
                else f"compare what is finished: shoal compare {shlex.quote(str(folder))}/*"
            )
        raise
    return finished


def _compare(
    runs: Sequence[Path], folder: Path, command: str, trained: bool
) -> "tuple[Comparison, list[Remark]]":
    from shoal.compare.comparison import compare
    from shoal.compare.document import write_report
    from shoal.compare.verdict import verdict

    comparison = compare(runs)
    remarks = verdict(comparison)
    write_report(folder, comparison, remarks, command, _machine() if trained else {})
    return comparison, remarks


def _machine() -> dict[str, str]:
    from shoal.labs.machine import machine

    return machine()


def _show(comparison: "Comparison", remarks: "Sequence[Remark]", folder: Path, stream: TextIO) -> None:
    from rich.console import Console

    console = Console(file=stream, highlight=False, width=None if stream.isatty() else WIDEST)
    with console.capture() as shown:
        console.print()
        _show_table(comparison, console)
        _show_verdict(remarks, console)
        for note in comparison.notes:
            console.print(f"note: {note}", markup=False, width=_text_width(console))
        console.print(f"\n{folder / 'report.html'}", markup=False, soft_wrap=True)
    # Rich fills lines up with spaces, which nobody wants in a file.
    stream.write("\n".join(line.rstrip() for line in shown.get().split("\n")))
    stream.flush()


def _show_table(comparison: "Comparison", console: "Console") -> None:
    """One table, or several below each other where the terminal is too narrow for one."""
    from shoal.compare import table

    results, shares = table.table_rows(comparison), table.share_rows(comparison)
    split = table.SHARES_AT
    whole = (
        (*table.HEADER[:split], *table.SHARES, *table.HEADER[split:]),
        [(*row[:split], *parts, *row[split:]) for row, parts in zip(results, shares, strict=True)],
    )
    parts = (
        (table.HEADER[0], *table.SHARES),
        [(row[0], *parts) for row, parts in zip(results, shares, strict=True)],
    )
    if _fits(*whole, console):
        console.print(_table(*whole))
    else:
        tables = [*_narrowed(table.HEADER, results, console), *_narrowed(*parts, console)]
        for each in tables[:-1]:
            console.print(each, "", sep="\n")
        console.print(tables[-1])
    console.print(
        f"\n{table.LEGEND} {table.SHARES_LEGEND}\n", style="dim", markup=False, width=_text_width(console)
    )


def _narrowed(header: Sequence[str], rows: Sequence[Sequence[str]], console: "Console") -> "Iterator[Table]":
    """Tables with as many of the columns as fit, each with the names of the runs; one column at least."""
    taken = [1]
    for column in range(2, len(header)):
        if not _fits(*_columns([0, *taken, column], header, rows), console):
            yield _table(*_columns([0, *taken], header, rows))
            taken = []
        taken.append(column)
    yield _table(*_columns([0, *taken], header, rows))


def _columns(
    taken: Sequence[int], header: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    return [header[column] for column in taken], [[row[column] for column in taken] for row in rows]


def _fits(header: Sequence[str], rows: Sequence[Sequence[str]], console: "Console") -> bool:
    room = console.options.update(width=1000)
    return console.measure(_table(header, rows), options=room).maximum <= console.width


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> "Table":
    """Names to the left, numbers to the right; a column's name breaks before its last word."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), show_edge=False, header_style="bold"
    )
    for column, name in enumerate(header):
        first, _, last = name.rpartition(" ")
        broken = f"{first}\n{last}" if first else name
        table.add_column(broken, justify="right" if column else "left", no_wrap=column > 0, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _text_width(console: "Console") -> int:
    return min(console.width, 100)


def _show_verdict(remarks: "Sequence[Remark]", console: "Console") -> None:
    from rich.markup import escape
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for remark in remarks:
        advice = f"\n→ {escape(remark.advice)}" if remark.advice else ""
        grid.add_row(
            f"[{COLOURS[remark.tone]}]{remark.word}[/]",
            f"[bold]{escape(remark.claim)}[/bold] {escape(remark.numbers)}{advice}",
        )
    console.print(grid, width=_text_width(console))


def _as_json(comparison: "Comparison", remarks: "Sequence[Remark]", folder: Path) -> str:
    from shoal.compare.table import as_data

    return json.dumps(
        {
            "runs": [as_data(entry, comparison) for entry in comparison.entries],
            "verdict": [vars(remark) for remark in remarks],
            "notes": comparison.notes,
            "report": str(folder / "report.html"),
        }
    )
