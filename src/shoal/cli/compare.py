"""`shoal compare`: the same training by several strategies: one table, a verdict, a report."""

import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.errors import ConfigError, ShoalError
from shoal.printable import printable

if TYPE_CHECKING:
    from shoal.compare.comparison import Comparison
    from shoal.compare.remark import Remark
    from shoal.compare.variants import Variant
    from shoal.words import Words

MOST_REPEATED_S = 5.0
"""The longest time for which runs that a busy machine delayed are repeated."""


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

    Flags of `shoal train` apply to every run that is trained (--epochs 3); those of the launcher (--workers 4) only to
    runs with several workers. A TOML file with a table [variants], each a name and its flags, defines your own
    comparison; variants in a table [more] are trained only with --all. If no variant is `single` with the workers'
    number of threads, that run is added: all others should equal it.
    """
    flags = given.flags
    are_runs = _are_runs(given)

    from shoal.compare.earlier import earlier_runs
    from shoal.compare.terminal import show
    from shoal.compare.variants import variants_of
    from shoal.labs.folder import claimed, report_folder
    from shoal.labs.words import load_words
    from shoal.training.stop import Series

    words = load_words("shoal.compare", flags.lang)
    variants = [] if are_runs else variants_of(given.words, given.settings, flags.trust_code, flags.all)
    earlier = earlier_runs(flags.runs) if flags.runs else None
    folder = report_folder(str(flags.out or ""), "compare")
    with Series(), claimed(folder):
        if are_runs:
            runs = [Path(name) for name in given.words]
        else:
            if not flags.quiet:  # at once: training loads torch
                print(words("progress.starting"), file=flags.stream, flush=True)
            try:
                runs = _train(variants, folder / "runs", earlier, flags, words)
            except KeyboardInterrupt:
                text.warn(words("progress.stopped", command=_again(given, folder / "runs", earlier)))
                raise
        command = shlex.join(["shoal", "compare", *given.argv])
        comparison, remarks = _compare(runs, folder, command, words, trained=not are_runs)
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


def _train(
    variants: "Sequence[Variant]",
    folder: Path,
    earlier: Path | None,
    flags: CompareFlags,
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
    begin_s = time.perf_counter()
    width = max(len(variant.name) for variant in variants)
    try:
        with watch_for(flags.stream, flags.quiet) as watch:
            watch.say(words("progress.compared", count=len(variants)))
            for number, variant in enumerate(variants, 1):
                label = f"{number:{len(str(len(variants)))}}/{len(variants)}  {variant.name:{width}}"
                if earlier and taken_over(variant, folder, earlier):
                    finished.append(folder / variant.name)
                    watch.say(f"  {label}  {words('progress.taken_over', folder=earlier)}")
                    continue
                start_s = time.perf_counter()
                try:
                    train(variant, folder, watch.running(f"  {label.rstrip()}"))
                except ShoalError as error:
                    if not (variant.may_be_left_out and error.exit_code == ConfigError.exit_code):
                        raise
                    watch.say(f"  {label}  {words('progress.left_out', why=printable(error.message))}")
                    continue
                finished.append(folder / variant.name)
                took_s[variant.name] = time.perf_counter() - start_s
                left = [
                    each for each in variants[number:] if not (earlier and (earlier / each.name).exists())
                ]
                so_far = _so_far(begin_s, len(took_s), len(left), words)
                how = f"  {described(variant.config, words)}" * flags.all
                watch.say(f"  {label}  {took_s[variant.name]:5.1f} s  {so_far}{how}")
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


def _so_far(begin_s: float, done: int, left: int, words: "Words") -> str:
    """The time since the first run began, and the whole time if the runs that are left take as long as these did."""
    elapsed_s = time.perf_counter() - begin_s
    return words("progress.so_far", elapsed=elapsed_s, expected=elapsed_s * (1 + left / done))


def _compare(
    runs: Sequence[Path], folder: Path, command: str, words: "Words", trained: bool
) -> "tuple[Comparison, list[Remark]]":
    from shoal.compare.comparison import compare
    from shoal.compare.comparison_report import write_report
    from shoal.compare.verdict import verdict

    comparison = compare(runs)
    remarks = verdict(comparison, words)
    facts: dict[str, str] = {}
    if trained:
        from shoal.labs.machine import machine  # loads torch

        facts = machine()
    write_report(folder, comparison, remarks, command, facts, words)
    return comparison, remarks


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
