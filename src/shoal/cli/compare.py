"""`shoal compare`: the same training by several strategies: one table, a verdict, a report."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.config.kinds import Several
from shoal.config.sections.values import Count
from shoal.errors import ConfigError, ShoalError

if TYPE_CHECKING:
    from shoal.compare.comparison import Comparison
    from shoal.compare.remark import Remark
    from shoal.compare.repeated.rows import Rows
    from shoal.words import Words

STDOUT = Path("-")


@dataclass(frozen=True)
class CompareFlags(Flags):
    """Where the report goes, and what is shown."""

    out: Path | None = None
    """Folder of the report and its runs (default reports/compare-TIME)."""
    runs: Path | None = None
    """Folder of an earlier comparison: reuse its finished runs, and train only the rest."""
    all: bool = False
    """Every variant, column and remark (default: the variants, columns and remarks that tell most)."""
    seeds: Count = 1
    """Train every variant with so many seeds, from --seed on: means with 95 % intervals, differences paired by seed."""
    sweep: Annotated[tuple[str, ...], Several()] = ()
    """KEY=VALUE,VALUE: train every variant that has this setting with each value; repeatable, for all products."""
    latex: Path | None = None
    """Write the table in LaTeX (booktabs) to this file; -: to standard output."""
    lang: Literal["en", "zh"] = "en"
    """Language of the table, the verdict and the report."""
    trust_code: bool = False
    """Run your own functions (package.module:function) that the recipes name."""
    json: bool = False
    """Print the result as one line of JSON; everything else goes to standard error."""
    quiet: bool = False
    """Show no progress, only the table, the verdict and the path."""

    @property
    def stream(self) -> TextIO:
        """Where everything but JSON and LaTeX goes."""
        return sys.stderr if self.json or self.latex == STDOUT else sys.stdout

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.latex == STDOUT and self.json:
            raise ConfigError("--latex - and --json both write to standard output", "Give --latex a file.")
        if self.latex and self.latex.is_dir():
            raise ConfigError(f"--latex {self.latex} is a folder", "Name a file, such as table.tex.")


def run(given: Given[CompareFlags]) -> int:
    """Train the same model by several strategies: one table, a verdict, a report.

        shoal compare quickstart      the same training in eight ways, or --all
        shoal compare mine.toml       your own recipe in the same ways
        shoal compare a.toml b.toml   several recipes, as they are
        shoal compare runs/*          finished runs; nothing is trained
        shoal compare mine.toml --validation 0.1 --seeds 5 --sweep lr=0.1,0.01
                                      seeds and settings: a table for a paper

    Flags of `shoal train` apply to every run that is trained (--epochs 3); launcher flags (--workers 4) only to runs
    with several workers. A TOML file with a table [variants], each a name and its flags, defines your own
    comparison; variants in a table [more] are trained only with --all. If no variant is `single` with the workers'
    number of threads, that run is added: all others should equal it.
    """
    flags = given.flags

    from shoal.api.compare import Progress, are_runs, judged, repeats, train_all
    from shoal.compare.earlier import earlier_runs
    from shoal.compare.repeated.report import Trained, judged_rows
    from shoal.compare.repeated.sweep import read_sweep
    from shoal.compare.variants import variants_of
    from shoal.report.folder import claimed, report_folder
    from shoal.report.words import page_words
    from shoal.training.stop import Series

    words = page_words(flags.lang, "shoal.compare")
    of_training = {"--runs": flags.runs, "--seeds": flags.seeds > 1, "--sweep": flags.sweep}
    finished = are_runs(
        given.words, [*given.settings, *(name for name, value in of_training.items() if value)]
    )
    sweep = read_sweep(flags.sweep)
    made = [] if finished else variants_of(given.words, given.settings, flags.trust_code, flags.all, sweep)
    variants = repeats(made, flags.seeds, sweep)
    earlier = earlier_runs(flags.runs) if flags.runs else None
    folder = report_folder(str(flags.out or ""), "compare")
    with Series(), claimed(folder):
        if finished:
            trained = Trained([Path(name) for name in given.words], {})
        else:
            if not flags.quiet:  # at once: training loads torch
                print(words("progress.starting"), file=flags.stream, flush=True)
            try:
                show_as = Progress(flags.stream, flags.quiet, flags.all, text.warn)
                trained = train_all(variants, folder / "runs", earlier, words, show_as)
            except KeyboardInterrupt:
                text.warn(words("progress.stopped", command=_again(given, folder / "runs", earlier)))
                raise
        command = shlex.join(["shoal", "compare", *given.argv])
        if variants and variants[0].row:
            rows = judged_rows(trained, variants, folder, command, words)
            return _finish_rows(given, rows, folder, words)
        comparison, remarks = judged(trained.finished, folder, command, words, trained=not finished)
    return _finish(given, comparison, remarks, folder, words)


def _finish(
    given: Given[CompareFlags],
    comparison: "Comparison",
    remarks: "Sequence[Remark]",
    folder: Path,
    words: "Words",
) -> int:
    """Show a comparison."""
    from shoal.compare.table import latex
    from shoal.compare.terminal import show

    flags = given.flags
    show(comparison, remarks, folder, flags.stream, words, flags.all)
    _write_latex(flags, latex(comparison, words) if flags.latex else "")
    if flags.json:
        text.show(_as_json(comparison, remarks, folder, words))
    elif not flags.quiet:
        text.next_step(*_next(given, comparison, folder))
    return 0


def _finish_rows(given: Given[CompareFlags], rows: "Rows", folder: Path, words: "Words") -> int:
    """Show a comparison with several seeds or a sweep; the next command says what is slow and what is right.

    The exit code is that of an error if a run failed.
    """
    from shoal.compare.repeated.report import latex_of_rows, run_data
    from shoal.compare.repeated.rows import as_data
    from shoal.compare.repeated.table import row_notes
    from shoal.compare.terminal import show_rows

    flags = given.flags
    show_rows(rows, folder, flags.stream, words)
    _write_latex(flags, latex_of_rows(rows, words))
    if flags.json:
        found = {
            "rows": [as_data(row, rows) for row in rows.rows],
            "failed": [{"name": each.name, "run": each.run, "reason": each.reason} for each in rows.failed],
            "runs": run_data(rows),
            "notes": row_notes(rows, words),
            "report": str(folder / "report.html"),
        }
        text.show(json.dumps(found))
    elif not flags.quiet and len(rows.rows) > 1:
        first = [str(row.runs[0].run.folder.path) for row in rows.rows]
        text.next_step("shoal", "compare", *first)
    return ShoalError.exit_code if rows.failed else 0


def _write_latex(flags: CompareFlags, table: str) -> None:
    from shoal.report.folder import write_files

    if flags.latex == STDOUT:
        text.show(table.rstrip("\n"))
    elif flags.latex:
        write_files(flags.latex.parent, {PurePosixPath(flags.latex.name): table})


def _next(given: Given[CompareFlags], comparison: "Comparison", folder: Path) -> list[str]:
    """The command to type next: with --all if it trains more, else the report of the run that computes least."""
    trained = comparison.entries[0].run.folder.path.parent.parent == folder
    if trained and not given.flags.all and len(given.words) == 1:
        return _command(given, folder, "--all")
    least = min(comparison.several() or comparison.entries, key=lambda entry: entry.shares["compute"])
    return ["shoal", "report", str(least.run.folder.path)]


def _again(given: Given[CompareFlags], runs: Path, earlier: Path | None) -> str:
    """The command that makes the rest of an interrupted comparison."""
    from shoal.compare.earlier import to_continue_from

    return shlex.join(_command(given, to_continue_from(runs, earlier) or given.flags.runs))


def _command(given: Given[CompareFlags], runs: Path | None, *more: str) -> list[str]:
    """The same command with these runs and more flags; --out is in use now, so a folder beside it."""
    from shoal.report.folder import free_beside

    flags = given.flags
    switches = [
        f"--{name.replace('_', '-')}"
        for name in ("all", "trust_code", "json", "quiet")
        if getattr(flags, name)
    ]
    lang = ["--lang", flags.lang] if flags.lang != CompareFlags.lang else []
    out = ["--out", str(free_beside(flags.out))] if flags.out else []
    of_runs = ["--runs", str(runs)] if runs else []
    seeds = ["--seeds", str(flags.seeds)] if flags.seeds > 1 else []
    sweep = [word for each in flags.sweep for word in ("--sweep", each)]
    latex = ["--latex", str(flags.latex)] if flags.latex else []
    repeated = [*seeds, *sweep, *latex]
    return [
        "shoal",
        "compare",
        *given.words,
        *given.settings,
        *more,
        *switches,
        *repeated,
        *lang,
        *out,
        *of_runs,
    ]


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
