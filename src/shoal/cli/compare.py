"""`shoal compare`: the same training by several strategies: one table, a verdict, a report."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags

if TYPE_CHECKING:
    from shoal.compare.comparison import Comparison
    from shoal.compare.remark import Remark
    from shoal.words import Words


@dataclass(frozen=True)
class CompareFlags(Flags):
    """Where the report goes, and what is shown."""

    out: Path | None = None
    """Folder of the report and its runs (default reports/compare-TIME)."""
    runs: Path | None = None
    """Folder of an earlier comparison: reuse its finished runs, and train only the rest."""
    all: bool = False
    """Every variant, column and remark (default: the variants, columns and remarks that tell most)."""
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
        """Where everything but JSON goes."""
        return sys.stderr if self.json else sys.stdout


def run(given: Given[CompareFlags]) -> int:
    """Train the same model by several strategies: one table, a verdict, a report.

        shoal compare quickstart      the same training in eight ways, or --all
        shoal compare mine.toml       your own recipe in the same ways
        shoal compare a.toml b.toml   several recipes, as they are
        shoal compare runs/*          finished runs; nothing is trained

    Flags of `shoal train` apply to every run that is trained (--epochs 3); launcher flags (--workers 4) only to runs
    with several workers. A TOML file with a table [variants], each a name and its flags, defines your own
    comparison; variants in a table [more] are trained only with --all. If no variant is `single` with the workers'
    number of threads, that run is added: all others should equal it.
    """
    flags = given.flags

    from shoal.api.compare import Progress, are_runs, judged, train_all
    from shoal.compare.earlier import earlier_runs
    from shoal.compare.terminal import show
    from shoal.compare.variants import variants_of
    from shoal.report.folder import claimed, report_folder
    from shoal.report.words import page_words
    from shoal.training.stop import Series

    words = page_words(flags.lang, "shoal.compare")
    finished = are_runs(given.words, [*given.settings, *(["--runs"] if flags.runs else [])])
    variants = [] if finished else variants_of(given.words, given.settings, flags.trust_code, flags.all)
    earlier = earlier_runs(flags.runs) if flags.runs else None
    folder = report_folder(str(flags.out or ""), "compare")
    with Series(), claimed(folder):
        if finished:
            runs = [Path(name) for name in given.words]
        else:
            if not flags.quiet:  # at once: training loads torch
                print(words("progress.starting"), file=flags.stream, flush=True)
            try:
                show_as = Progress(flags.stream, flags.quiet, flags.all, text.warn)
                runs = train_all(variants, folder / "runs", earlier, words, show_as)
            except KeyboardInterrupt:
                text.warn(words("progress.stopped", command=_again(given, folder / "runs", earlier)))
                raise
        command = shlex.join(["shoal", "compare", *given.argv])
        comparison, remarks = judged(runs, folder, command, words, trained=not finished)
    show(comparison, remarks, folder, flags.stream, words, flags.all)
    if flags.json:
        text.show(_as_json(comparison, remarks, folder, words))
    elif not flags.quiet:
        text.next_step(*_next(given, comparison, folder))
    return 0


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
    """The same command with these runs and more flags. --out is left out: that folder is in use now."""
    flags = given.flags
    switches = [
        f"--{name.replace('_', '-')}"
        for name in ("all", "trust_code", "json", "quiet")
        if getattr(flags, name)
    ]
    lang = ["--lang", flags.lang] if flags.lang != CompareFlags.lang else []
    of_runs = ["--runs", str(runs)] if runs else []
    return ["shoal", "compare", *given.words, *given.settings, *more, *switches, *lang, *of_runs]


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
