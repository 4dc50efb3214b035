"""What is written into a lab's report folder."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import cast

from shoal.kit.base import Phrase
from shoal.kit.findings import Finding, Measured, Number
from shoal.kit.page import Document, Records, linked, records_to_csv, to_html, to_markdown, write_files
from shoal_labs.claims import Findings
from shoal_labs.page.pictures import Pictures
from shoal_labs.page.table import spread


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
            "value": value.value if isinstance(value, Measured) else value,
            "spread": spread(value),
        }
        for given, whole in numbers.items()
        for name, value in _parts(given, whole)
    ]


def _parts(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The numbers in a number: its parts in a list, and in a phrase the values of its sentence."""
    if isinstance(value, tuple):
        parts = {str(place): part for place, part in enumerate(cast(tuple[object, ...], value))}
    elif isinstance(value, Phrase):
        parts = dict[str, object](value.values)
    else:
        yield name, value
        return
    if not parts:
        yield name, str(value or "")
    for key, part in parts.items():
        yield from _parts(f"{name}, {key}", part)
