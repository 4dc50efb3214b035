"""`shoal report`: a page about one finished run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags


@dataclass(frozen=True)
class ReportFlags(Flags):
    """Where the report goes."""

    out: Path | None = None
    """Folder of the report (default reports/NAME-TIME)."""
    lang: Literal["en", "zh"] = "en"
    """Language of the report."""


def run(given: Given[ReportFlags]) -> int:
    """Write a page about one finished run: numbers, curves, where the time went, settings, environment.

    RUN is a run folder. Nothing is trained, and torch is not needed. `shoal compare` puts several runs side by side.
    """
    from shoal.api.runs import report

    made = report(given.words[0], out=given.flags.out, lang=given.flags.lang)
    text.show(text.rows(made.numbers))
    text.show(str(made.page))
    return 0


COMMAND = Command("report", run, ReportFlags, words="RUN")
