"""`shoal.compare`: the same training by several strategies, one run after another, and what their results say."""

import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, Unpack

from shoal.api.keywords import Settings
from shoal.api.notebook import in_notebook
from shoal.api.settings import tree_of
from shoal.compare.comparison import Comparison, not_scheduled
from shoal.compare.comparison import compare as compare_runs
from shoal.compare.comparison_report import write_report
from shoal.compare.earlier import earlier_runs
from shoal.compare.remark import Remark, notes
from shoal.compare.repeated import rows as repeated
from shoal.compare.repeated.report import Trained, judged_rows, latex_of_rows, run_data
from shoal.compare.repeated.sweep import Sweep, read_sweep
from shoal.compare.repeated.table import row_notes
from shoal.compare.table import as_data, described, latex
from shoal.compare.variants import Variant, by_seeds, taken_over, train, train_again, variants_of
from shoal.compare.verdict import verdict
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Count
from shoal.errors import ConfigError, ShoalError, WorkerError
from shoal.events.clocks import BUSY
from shoal.printable import printable
from shoal.report.folder import claimed, report_folder
from shoal.report.words import page_words
from shoal.training.result import Result
from shoal.training.stop import Series
from shoal.words import Words

MOST_REPEATED_S = 5.0
"""The longest time for which runs that a busy machine delayed are repeated."""


@dataclass(frozen=True, repr=False)
class Compared:
    """Several runs side by side."""

    runs: tuple[dict[str, Any], ...]
    """A row for each run, as pandas takes them: accuracy, speed, where its time went, whether it equals one machine."""
    remarks: tuple[Remark, ...]
    """The verdict: what holds, what costs time, and what to try next."""
    notes: tuple[str, ...]
    """What a reader needs to know before the numbers."""
    page: Path
    """The page of the comparison, for a browser; tables, figures and the folder `runs` are beside it."""
    latex: str = ""
    """The table for a paper, in LaTeX with booktabs."""
    rows: tuple[dict[str, Any], ...] = ()
    """With several seeds or a sweep: for each variant and setting the means, half intervals and verdict."""

    def __repr__(self) -> str:
        return f"Compared({', '.join(row['name'] for row in self.rows or self.runs)}; {self.page})"


@checks_arguments
def compare(
    *recipes: str | Path | Result,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    all: bool = False,  # noqa: A002 (as --all)
    lang: Literal["en", "zh"] = "en",
    progress: bool = True,
    trust_code: bool = False,
    seeds: Count = 1,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    **settings: Unpack[Settings],
) -> Compared:
    """Train the same model by several strategies, or compare finished runs, as `shoal compare` does.

        shoal.compare("quickstart", epochs=1)       the same training in eight ways, or with all=True in all
        shoal.compare("mine.toml", "other.toml")    several recipes, as they are
        shoal.compare(one, two)                     finished runs: results or folders; nothing is trained

    Settings apply to every run that is trained; launcher settings, such as `workers`, only to runs with several
    workers. `out` is the folder of the page and the runs, by default reports/compare-TIME. `runs` is the folder of an
    earlier comparison, whose finished runs are reused; `all` also trains the variants in a recipe's table [more].

    With seeds=5 each variant is trained with five seeds, and with sweep={"exchange.ratio": [0.1, 0.01]} with each
    value: then `rows` has means with 95 % intervals, and differences paired by seed.
    """
    names = [str(each.run if isinstance(each, Result) else each) for each in recipes]
    if not names:
        raise ConfigError("compare needs a recipe, or two runs", "Start with shoal.compare('quickstart').")
    words = page_words(lang, "shoal.compare")
    changes = tree_of(settings)
    swept = read_sweep(sweep or {})
    flags = [
        *(f"--{name.replace('_', '-')}" for name in settings),
        *(f"--{name}" for name, value in {"runs": runs, "seeds": seeds > 1, "sweep": sweep}.items() if value),
    ]
    finished = are_runs(names, flags)
    variants = [] if finished else repeats(variants_of(names, changes, trust_code, all, swept), seeds, swept)
    earlier = earlier_runs(runs) if runs else None
    folder = report_folder(str(out or ""), "compare")
    more = {"all": all, "seeds": seeds > 1 and seeds, "sweep": sweep}
    given = {**{name: value for name, value in more.items() if value}, **settings}
    listed = ", ".join([*map(repr, names), *(f"{name}={value!r}" for name, value in given.items())])
    command = f"shoal.compare({listed})"
    stream = sys.stdout if in_notebook() else sys.stderr
    with Series(), claimed(folder):
        if finished:
            trained = Trained([Path(name) for name in names], {})
        else:
            shown = Progress(stream, not progress, every=all, warn=_warn)
            trained = train_all(variants, folder / "runs", earlier, words, shown)
        if variants and variants[0].row:
            rows = judged_rows(trained, variants, folder, command, words)
            table = tuple(repeated.as_data(row, rows) for row in rows.rows)
            noted, page = tuple(row_notes(rows, words)), folder / "report.html"
            return Compared(tuple(run_data(rows)), (), noted, page, latex_of_rows(rows, words), table)
        comparison, remarks = judged(trained.finished, folder, command, words, trained=not finished)
    data = tuple(as_data(entry, comparison, words) for entry in comparison.entries)
    noted, page = tuple(notes(comparison, words)), folder / "report.html"
    return Compared(data, tuple(remarks), noted, page, latex(comparison, words))


def repeats(variants: list[Variant], seeds: int, sweep: Sweep) -> list[Variant]:
    """The variants with each seed, as rows of a table; as they are where there is one seed and no sweep."""
    return by_seeds(variants, seeds) if seeds > 1 or sweep.values else variants


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=2)


def are_runs(names: Sequence[str], flags: Sequence[str]) -> bool:
    """Whether the names are run folders; a single run, or flags for finished runs, are refused."""
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
    if folders and flags:
        raise ConfigError(
            f"{flags[0].partition('=')[0]} has no effect on finished runs",
            "Compare a recipe to train with other settings.",
        )
    return bool(folders)


@dataclass(frozen=True)
class Progress:
    """How much is shown while runs are trained, and where."""

    stream: TextIO
    quiet: bool
    every: bool
    """Whether all variants are shown, and so each with its settings."""
    warn: Callable[[str], None]


def train_all(
    variants: Sequence[Variant], folder: Path, earlier: Path | None, words: Words, progress: Progress
) -> Trained:
    """Train one variant after another, and once more those that other work on the machine delayed.

    If one fails or is interrupted, the finished runs stay and can be compared: a warning says so. With several seeds
    or a sweep the others are trained after a failure, as long as a row can become complete.
    """
    from shoal.compare.watch import watch_for  # loads torch

    finished, failed = list[Path](), dict[str, ShoalError]()
    took_s: dict[str, float] = {}
    begin_s = time.perf_counter()
    width = max(len(variant.name) for variant in variants)
    try:
        with watch_for(progress.stream, progress.quiet) as watch:
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
                    what = _after(error, variant)
                    if not what:
                        raise
                    if what == "failed":
                        failed[variant.name] = error
                    watch.say(f"  {label}  {words(f'progress.{what}', why=printable(error.message))}")
                    continue
                finished.append(folder / variant.name)
                took_s[variant.name] = time.perf_counter() - start_s
                left = [
                    each for each in variants[number:] if not (earlier and (earlier / each.name).exists())
                ]
                so_far = _so_far(begin_s, len(took_s), len(left), words)
                how = f"  {described(variant.config, words)}" * progress.every
                watch.say(f"  {label}  {took_s[variant.name]:5.1f} s  {so_far}{how}")
            _check_some_row(variants, finished, failed)
            left_s = MOST_REPEATED_S
            for variant in [each for each in variants if each.name in took_s]:
                processes = variant.config.launch.workers + variant.config.num_servers
                if processes > (os.cpu_count() or 1):
                    continue  # its own processes delay each other, then as now
                if (not_scheduled(folder / variant.name) or 0.0) > BUSY and took_s[variant.name] <= left_s:
                    left_s -= took_s[variant.name]
                    again = watch.running(f"  {words('progress.again', name=variant.name)}")
                    train_again(variant, folder, again)
                    watch.say(f"  {words('progress.busy_again', name=variant.name)}")
    except (KeyboardInterrupt, ShoalError):
        if finished:
            progress.warn(
                words("progress.finished_one", folder=finished[0])
                if len(finished) == 1
                else words("progress.finished", folder=shlex.quote(str(folder)))
            )
        raise
    return Trained(finished, {name: printable(error.message) for name, error in failed.items()})


def _after(error: ShoalError, variant: Variant) -> Literal["", "left_out", "failed"]:
    """How a comparison goes on after the error of a run; not at all after errors of ours and a worker's crash."""
    if error.exit_code != ConfigError.exit_code:
        return ""
    is_refused = isinstance(error, ConfigError) or bool(isinstance(error, WorkerError) and error.refusal)
    if variant.may_be_left_out and (is_refused or not variant.row):
        return "left_out"
    return "failed" if variant.row else ""


def _check_some_row(
    variants: Sequence[Variant], finished: Sequence[Path], failed: Mapping[str, ShoalError]
) -> None:
    """Without a row whose runs have all finished there is nothing to show: raise the first error."""
    names = {path.name for path in finished}
    rows = {each.row for each in variants if each.name in names}
    if failed and not rows - {each.row for each in variants if each.name in failed}:
        raise next(iter(failed.values()))


def _so_far(begin_s: float, done: int, left: int, words: Words) -> str:
    """The time since the first run began, and the whole time if the runs that are left take as long as these did."""
    elapsed_s = time.perf_counter() - begin_s
    return words("progress.so_far", elapsed=elapsed_s, expected=elapsed_s * (1 + left / done))


def judged(
    runs: Sequence[Path], folder: Path, command: str, words: Words, trained: bool
) -> tuple[Comparison, list[Remark]]:
    """Compare finished runs, and write the page about them: `command` made it."""
    comparison = compare_runs(runs)
    remarks = verdict(comparison, words)
    facts: dict[str, str] = {}
    if trained:
        from shoal.compare.machine import machine  # loads torch

        facts = machine()
    write_report(folder, comparison, remarks, command, facts, words)
    return comparison, remarks
