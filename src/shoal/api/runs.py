"""`shoal.runs` and `shoal.report`: finished runs as rows, and one of them as a page. Without torch."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shoal.api.settings import path_of_run
from shoal.compare.comparison import compare
from shoal.compare.one_run import findings
from shoal.compare.remark import Remark
from shoal.compare.run_report import numbers_of, write_run_report
from shoal.config.arguments import checks_arguments
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.report.folder import claimed, report_folder
from shoal.report.run_table import COLUMNS, ListedRun, listed_runs, matching, ordered
from shoal.report.words import page_words
from shoal.training.result import Result


@checks_arguments
def runs(
    folder: str | Path = "runs", *, where: str | Sequence[str] = (), sort: str = ""
) -> list[dict[str, Any]]:
    """A row for each run in a folder, the latest last: a flat dictionary with all settings and results.

        pandas.DataFrame(shoal.runs(where=["strategy=ddp", "accuracy>0.9"], sort="accuracy"))

    `where` are conditions and `sort` is a column, as in `shoal runs`. Settings have their paths, such as
    `optimizer.lr`. A run that cannot be read is left out, with a warning.
    """
    found, damaged = selected(Path(folder), [where] if isinstance(where, str) else where, sort)
    for sentence in damaged:
        warnings.warn(sentence, stacklevel=3)  # over `checks_arguments`
    return [_row(run) for run in found]


def selected(folder: Path, where: Sequence[str] = (), sort: str = "") -> tuple[list[ListedRun], list[str]]:
    """The runs in a folder that satisfy all conditions, in order; and what is wrong with those that cannot be read."""
    found, damaged = listed_runs(folder)
    for condition in where:
        found = matching(found, condition)
    return (ordered(found, sort) if sort else found), damaged


TABLES = ("test_metrics", "validation_metrics", "best", "server")
"""Values that are tables; `listed_runs` also has the entries of the first three under names of their own."""


def _row(run: ListedRun) -> dict[str, Any]:
    """The values of a run, the columns of `shoal runs` first."""
    values = run.values
    server = {f"server.{key}": value for key, value in (values.get("server") or {}).items()}
    first = {"path": str(run.path), "began": run.began} | {column: values[column] for column in COLUMNS}
    return first | {name: value for name, value in values.items() if name not in TABLES} | server


@dataclass(frozen=True)
class Report:
    """The page about a run."""

    page: Path
    """The page, for a browser; `report.md`, figures and tables are beside it."""
    numbers: Mapping[str, str]
    """The numbers of the run, each with its unit, by their names in the language of the page."""
    findings: tuple[Remark, ...]
    """What a run of several workers shows by itself, the most useful first: its slow worker, where the time goes."""


@checks_arguments
def report(
    run: str | Path | Result, *, out: str | Path | None = None, lang: Literal["en", "zh"] = "en"
) -> Report:
    """Write a page about one finished run: numbers, findings, curves, where the time went, settings, environment.

        shoal.report("runs/NAME").page

    `out` is the folder of the page, by default reports/NAME-TIME.
    """
    return reported(path_of_run(run), out, lang)[1]


def reported(path: Path, out: str | Path | None, lang: Literal["en", "zh"]) -> tuple[RunConfig, Report]:
    """The settings of a run, and the page that is written about it."""
    if not path.is_dir():
        raise ConfigError(f"no run folder {path}", "Runs are in runs/NAME.")
    words = page_words(lang, "shoal.compare")
    found = compare([path])
    folder = report_folder(str(out or ""), path.resolve().name)
    with claimed(folder):
        write_run_report(folder, found, words)
    (entry,) = found.entries
    made = Report(folder / "report.html", numbers_of(entry, words), tuple(findings(found, words)))
    return entry.config, made
