"""The folder of a report: claimed before anything runs, filled at the end."""

import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from shoal.errors import ConfigError
from shoal.labs.page.analysis import Findings
from shoal.labs.page.pictures import Pictures
from shoal.report.document import Document
from shoal.report.findings import Number
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.index import REPORTS, linked, write_index
from shoal.report.markdown import to_markdown
from shoal.report.plain_tables import Records, records_to_csv


def report_folder(out: str, lab: str) -> Path:
    """The folder that the user asked for, or one named after the lab and the time."""
    return Path(out or f"{REPORTS}/{lab}-{datetime.now():%Y%m%d-%H%M%S}")


@contextmanager
def claimed(folder: Path, whole: bool = False) -> Generator[None]:
    """Make the folder before anything runs. A folder in use is refused; after an error an empty one is removed.

    When the report is written, the list of all reports is written again.

    With `whole` it is removed with all that is in it: runs of code that failed are of no use to a later report.
    """
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
    except BaseException as error:
        if whole and isinstance(error, Exception):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()
        raise
    write_index(folder)


def write_report(
    folder: Path,
    document: Document,
    pictures: Pictures,
    tables: Mapping[str, Records],
    findings: Findings,
) -> None:
    """Write figures, tables (the findings are one), and the report as Markdown and as a page, which appears last."""
    judged = [
        {
            "claim": finding.claim,
            "verdict": finding.verdict,
            "numbers": "; ".join(f"{key} = {_shown(value)}" for key, value in finding.numbers.items()),
        }
        for section in findings.values()
        for finding in section
    ]
    document = linked(document, folder)
    write_files(
        folder,
        {
            **pictures.files(),
            **{
                PurePosixPath(f"tables/{name}.csv"): records_to_csv(records)
                for name, records in {**tables, "findings": judged}.items()
            },
            PurePosixPath("report.md"): to_markdown(document),
            PurePosixPath("report.html"): to_html(document),
        },
    )


def _shown(value: Number) -> object:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value
