"""`shoal doctor`: what this machine has, what it lacks, and how to fix it."""

import os
import shutil
import sys
from dataclasses import dataclass

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags


@dataclass(frozen=True)
class DoctorFlags(Flags):
    """How the report is shown."""

    json: bool = False
    """Print one JSON object."""
    markdown: bool = False
    """Print a table to paste into a bug report."""


def run(given: Given[DoctorFlags]) -> int:
    """Show what this machine has, what it lacks, and how to fix it.

    The exit code is 1 if something that every run needs is broken.
    """
    from shoal.cli.doctor import checks, report

    found = checks.checks()
    if given.flags.json:
        text.show(report.as_json(found))
    elif given.flags.markdown:
        text.show(report.as_markdown(found))
    else:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        text.show(report.as_text(found, width=shutil.get_terminal_size((110, 24)).columns, colour=colour))
    return 1 if report.worst(found) == "FAIL" else 0


COMMAND = Command("doctor", run, DoctorFlags)
