"""What is written into a lab's report folder."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from shoal.report.document import Document
from shoal.report.findings import Number
from shoal.report.folder import write_files
from shoal.report.html import to_html
from shoal.report.index import linked
from shoal.report.markdown import to_markdown
from shoal.report.plain_tables import Records, records_to_csv
from shoal_labs.page.analysis import Findings
from shoal_labs.page.pictures import Pictures


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
