"""What is written into a lab's report folder."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from shoal.kit.findings import Finding, Measured, Number
from shoal.kit.page import Document, Records, linked, records_to_csv, to_html, to_markdown, write_files
from shoal_labs.claims import Findings
from shoal_labs.page.pictures import Pictures


def write_report(
    folder: Path,
    document: Document,
    pictures: Pictures,
    tables: Mapping[str, Records],
    findings: Findings,
) -> None:
    """Write figures, tables (the findings are one), and the report as Markdown and as a page, which appears last."""
    made = [finding for each in findings.values() for finding in each]
    judged = [row for place, finding in enumerate(made, 1) for row in _numbers(place, finding)]
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


def _numbers(place: int, finding: Finding) -> list[dict[str, object]]:
    """A row for each number of a finding."""
    numbers: Mapping[str, Number] = finding.numbers or {"": ""}
    return [
        {
            "finding": place,
            "claim": finding.claim,
            "verdict": finding.verdict,
            "number": name,
            "value": _plain(value),
            "spread": value.spread if isinstance(value, Measured) else "",
        }
        for name, value in numbers.items()
    ]


def _plain(value: Number) -> object:
    """One number, or a list as one text."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return value.value if isinstance(value, Measured) else value
