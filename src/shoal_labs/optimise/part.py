"""A part of the lab: one question with its own runs, findings, figures and sections of the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.config.schema import RunConfig
from shoal.report.document import Block
from shoal.report.findings import Finding
from shoal.report.plain_tables import Records
from shoal_labs.page.page import Page
from shoal_labs.page.pictures import Draw
from shoal_labs.runs import Runs


def no_runs(plan: Any) -> dict[str, RunConfig]:
    """Of a part that trains its runs while it measures."""
    del plan
    return {}


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a lab's spec says, for one part; names of runs, figures, tables and findings are unique in the lab."""

    plan: Callable[[int, bool, int], Any]
    """From workers, quick and the first seed."""
    takes_data: bool = True
    """Whether the user's data set takes the place of the plan's own."""
    runs: Callable[[Any], Mapping[str, RunConfig]] = no_runs
    measure: Callable[[Any, Runs], Any]
    findings: Callable[[Any], Mapping[str, Sequence[Finding]]]
    figures: Callable[[Any], Mapping[str, Draw]]
    tables: Callable[[Any], Mapping[str, Records]]
    principle: Callable[[Page], Sequence[Block]]
    code: Callable[[Page], Sequence[Block]]
    set_up: Callable[[Any, Page], Sequence[Block]]
    results: Callable[[Any, Page], Sequence[Block]]
