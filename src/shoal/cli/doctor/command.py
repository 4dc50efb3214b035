"""`shoal doctor`: what this machine has, what it lacks, and how to fix it; as text, JSON or Markdown."""

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from shoal import __version__
from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags

if TYPE_CHECKING:
    from shoal.cli.doctor.checks import Check, Status

COLOURS: dict["Status", str] = {"OK": "32", "WARN": "33", "FAIL": "1;31"}


def worst(found: "Sequence[Check]") -> "Status":
    """The worst status of all.

    >>> from shoal.cli.doctor.checks import Check
    >>> worst([Check("a", "OK", ""), Check("b", "WARN", "", "fix it")])
    'WARN'
    """
    statuses = {check.status for check in found}
    return "FAIL" if "FAIL" in statuses else "WARN" if "WARN" in statuses else "OK"


def as_text(found: "Sequence[Check]", width: int, colour: bool) -> str:
    """A line for each check, as wide as the terminal, and below it how to fix what it found.

    >>> from shoal.cli.doctor.checks import Check
    >>> print(as_text([Check("python", "OK", "3.11.7"), Check("port", "FAIL", "none", "ip link set lo up")], 60, False))
    OK    python  3.11.7
    FAIL  port    none
                  → ip link set lo up
    <BLANKLINE>
    1 OK, 0 WARN, 1 FAIL
    """
    name_width = max((len(check.name) for check in found), default=0)
    indent = 6 + name_width + 2
    lines: list[str] = []
    for check in found:
        body = textwrap.wrap(check.found, max(width - indent, 20), break_on_hyphens=False) or [""]
        status = f"\033[{COLOURS[check.status]}m{check.status:4}\033[0m" if colour else f"{check.status:4}"
        lines.append(f"{status}  {check.name:{name_width}}  {body[0]}".rstrip())
        lines += [" " * indent + line for line in body[1:]]
        if check.repair:
            # Not wrapped, so that the command can be copied.
            lines.append(" " * indent + f"→ {check.repair}")
    return "\n".join([*lines, "", _counts(found)])


def as_json(found: "Sequence[Check]") -> str:
    """One line: the version, the worst status, and every check with its four fields."""
    report = {"shoal": __version__, "status": worst(found), "checks": [asdict(check) for check in found]}
    return json.dumps(report, ensure_ascii=False)


def as_markdown(found: "Sequence[Check]") -> str:
    """A table to paste into a bug report.

    >>> from shoal.cli.doctor.checks import Check
    >>> print(as_markdown([Check("docker", "WARN", "a | b", "apt install docker.io")]))
    **shoal doctor** (shoal ...): 0 OK, 1 WARN, 0 FAIL
    <BLANKLINE>
    | | check | found | repair |
    |---|---|---|---|
    | WARN | docker | a \\| b | apt install docker.io |
    """
    cells = [
        [
            cell.replace("|", "\\|").replace("\n", " ")
            for cell in (each.status, each.name, each.found, each.repair)
        ]
        for each in found
    ]
    rows = [f"| {' | '.join(row)} |" for row in cells]
    title = f"**shoal doctor** (shoal {__version__}): {_counts(found)}"
    return "\n".join([title, "", "| | check | found | repair |", "|---|---|---|---|", *rows])


def _counts(found: "Sequence[Check]") -> str:
    return ", ".join(f"{sum(check.status == status for check in found)} {status}" for status in COLOURS)


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
    from shoal.cli.doctor import checks

    found = checks.checks()
    if given.flags.json:
        text.show(as_json(found))
    elif given.flags.markdown:
        text.show(as_markdown(found))
    else:
        text.show(
            as_text(
                found, width=shutil.get_terminal_size((110, 24)).columns, colour=text.has_styles(sys.stdout)
            )
        )
        if worst(found) != "FAIL":
            text.next_step("shoal", "train", "quickstart")
    return 1 if worst(found) == "FAIL" else 0


COMMAND = Command("doctor", run, DoctorFlags)
