"""`shoal compare`: the same training by several strategies: one table, a verdict, a report."""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.errors import ConfigError, ShoalError
from shoal.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from shoal.compare.comparison import Comparison
    from shoal.compare.remark import Remark
    from shoal.compare.variants import Variant
    from shoal.words import Words

Column = tuple[str, tuple[str, ...]]
WIDEST = 120
MOST_REPEATED_S = 5.0
"""The longest time for which runs that a busy machine delayed are repeated."""
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
    are_runs = _are_runs(given)

    from shoal.compare.earlier import earlier_runs
    from shoal.compare.variants import variants_of
    from shoal.labs.folder import claimed, report_folder
    from shoal.labs.words import load_words
    from shoal.training.stop import Series

    words = load_words("shoal.compare", flags.lang)
    variants = [] if are_runs else variants_of(given.words, given.settings, flags.trust_code)
    earlier = earlier_runs(flags.runs) if flags.runs else None
    folder = report_folder(str(flags.out or ""), "compare")
    with Series(), claimed(folder):
        if are_runs:
            runs = [Path(name) for name in given.words]
        else:
            try:
                runs = _train(variants, folder / "runs", earlier, stream, flags.quiet, words)
            except KeyboardInterrupt:
                text.warn(words("progress.stopped", command=_again(given, folder / "runs", earlier)))
                raise
        command = shlex.join(["shoal", "compare", *given.argv])
        comparison, remarks = _compare(runs, folder, command, words, trained=not are_runs)
    _show(comparison, remarks, folder, stream, words)
    if flags.json:
        text.show(_as_json(comparison, remarks, folder, words))
    return 0


def _are_runs(given: Given[CompareFlags]) -> bool:
    """Whether the words are run folders; a single run, or flags for finished runs, are refused."""
    names = given.words
    folders = [name for name in names if Path(name).is_dir()]
    for name in names:
        if "/" in name and Path(name).suffix != ".toml" and not Path(name).exists():
            raise ConfigError(f"no run folder {name}", "`shoal compare runs/*` compares all finished runs.")
        if folders and not (Path(name) / "config.toml").exists():
            raise ConfigError(
                f"{name} is not a run folder",
                f"To compare the runs in it: shoal compare {name}/*"
                if name in folders
                else "Recipes and runs cannot be compared together.",
            )
    if folders and len(names) == 1:
        raise ConfigError(f"{names[0]} is a single run", "Name at least two runs to compare.")
    if folders and (given.settings or given.flags.runs):
        flag = given.settings[0].partition("=")[0] if given.settings else "--runs"
        raise ConfigError(
            f"{flag} has no effect on finished runs", "Compare a recipe to train with other settings."
        )
    return bool(folders)


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


def _train(
    variants: "Sequence[Variant]",
    folder: Path,
    earlier: Path | None,
    stream: TextIO,
    quiet: bool,
    words: "Words",
) -> list[Path]:
    """Train one variant after another, and once more those that other work on the machine delayed.

    If one fails or is interrupted, the finished runs stay and can be compared.
    """
    from shoal.compare.comparison import not_scheduled
    from shoal.compare.table import described
    from shoal.compare.variants import taken_over, train, train_again
    from shoal.events.clocks import BUSY
    from shoal.labs.watch import watch_for

    finished: list[Path] = []
    took_s: dict[str, float] = {}
    width = max(len(variant.name) for variant in variants)
    try:
        with watch_for(stream, quiet) as watch:
            watch.say(words("progress.compared", count=len(variants)))
            for number, variant in enumerate(variants, 1):
                label = f"{number:{len(str(len(variants)))}}/{len(variants)}  {variant.name:{width}}"
                how = described(variant.config, words)
                if earlier and taken_over(variant, folder, earlier):
                    finished.append(folder / variant.name)
                    watch.say(f"  {label}  {words('progress.taken_over', folder=earlier)}")
                    continue
                start_s = time.perf_counter()
                try:
                    result = train(variant, folder, watch.running(f"  {label}  {how}"))
                except ShoalError as error:
                    if not (variant.may_be_left_out and error.exit_code == ConfigError.exit_code):
                        raise
                    watch.say(f"  {label}  {words('progress.left_out', why=printable(error.message))}")
                    continue
                finished.append(folder / variant.name)
                took_s[variant.name] = time.perf_counter() - start_s
                watch.say(f"  {label}  {result.seconds:5.1f} s  {how}")
            left_s = MOST_REPEATED_S
            for variant in [each for each in variants if each.name in took_s]:
                processes = variant.config.launch.workers + variant.config.num_servers
                if processes > (os.cpu_count() or 1):
                    continue  # its own processes delay each other, then as now
                if (not_scheduled(folder / variant.name) or 0.0) > BUSY and took_s[variant.name] <= left_s:
                    left_s -= took_s[variant.name]
                    train_again(
                        variant, folder, watch.running(f"  {words('progress.again', name=variant.name)}")
                    )
                    watch.say(f"  {words('progress.busy_again', name=variant.name)}")
    except (KeyboardInterrupt, ShoalError):
        if finished:
            text.warn(
                words("progress.finished_one", folder=finished[0])
                if len(finished) == 1
                else words("progress.finished", folder=shlex.quote(str(folder)))
            )
        raise
    return finished


def _compare(
    runs: Sequence[Path], folder: Path, command: str, words: "Words", trained: bool
) -> "tuple[Comparison, list[Remark]]":
    from shoal.compare.comparison import compare
    from shoal.compare.comparison_report import write_report
    from shoal.compare.verdict import verdict
    from shoal.labs.machine import machine

    comparison = compare(runs)
    remarks = verdict(comparison, words)
    write_report(folder, comparison, remarks, command, machine() if trained else {}, words)
    return comparison, remarks


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
