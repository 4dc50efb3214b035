"""The folder of a report: claimed before anything runs, filled when everything is known."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from shoal.errors import ConfigError
from shoal.labs.analysis import judgement
from shoal.labs.pictures import Pictures
from shoal.labs.words import Words
from shoal.report.document import Document
from shoal.report.findings import Finding
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.markdown import to_markdown
from shoal.report.tables import to_csv

REPORTS = "reports"


@dataclass(frozen=True)
class Rows:
    """A table for other programs: names with units, and rows. In English whatever the report's language is."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Outcome:
    """What the command line shows at the end."""

    folder: Path
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    findings: Sequence[tuple[str, str]]
    """Verdict and claim, in words."""


def report_folder(out: str, lab: str) -> Path:
    """Where the report goes: the folder asked for, or one named after the lab and the time."""
    return Path(out or f"{REPORTS}/{lab}-{datetime.now():%Y%m%d-%H%M%S}")


@contextmanager
def claimed(folder: Path) -> Generator[None]:
    """Make the report's folder before anything runs; one in use is not touched, an empty one not left."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"the folder {folder} is not empty", "Choose another one with --out.")
        with TemporaryDirectory(dir=folder):
            pass  # it can be written into
    except OSError as error:
        raise ConfigError(
            f"cannot write the report folder {folder}: {error.strerror}", "Choose another one with --out."
        ) from None
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise


def write_report(
    folder: Path,
    document: Document,
    pictures: Pictures,
    tables: Mapping[str, Rows],
    findings: Sequence[Finding],
) -> None:
    """Figures, tables (the findings among them), and the report as Markdown and as a page, which appears last."""
    judged = [
        [f.claim, f.verdict, "; ".join(f"{key} = {value}" for key, value in f.numbers.items())]
        for f in findings
    ]
    all_tables = {**tables, "findings": Rows(["claim", "verdict", "numbers"], judged)}
    write_files(
        folder,
        {
            **pictures.files(),
            **{
                PurePosixPath(f"tables/{name}.csv"): to_csv(table.header, table.rows)
                for name, table in all_tables.items()
            },
            PurePosixPath("report.md"): to_markdown(document),
            PurePosixPath("report.html"): to_html(document),
        },
    )


def outcome(
    folder: Path,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    findings: Sequence[Finding],
    words: Words,
) -> Outcome:
    """What the command line is to show: a table of results, and every verdict with its claim."""
    judged = [judgement(finding, words) for finding in findings]
    return Outcome(folder, header, rows, [(block.verdict_words, block.claim) for block in judged])
