"""`shoal doctor`: what this machine has, what it lacks, and how to fix it; as text, JSON or Markdown."""

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shoal import __version__
from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.config.sections.values import Seconds

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


def as_json(found: "Sequence[Check]", more: "Mapping[str, Any] | None" = None) -> str:
    """One line: the version, the worst status, and every check with its four fields; then what else there is."""
    report = {"shoal": __version__, "status": worst(found), "checks": [asdict(check) for check in found]}
    return json.dumps({**report, **(more or {})}, ensure_ascii=False)


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
    cluster: bool = False
    """Examine all machines of a run and the network between them; start it through your launcher."""
    join_timeout: Seconds = 60.0
    """With --cluster: how long to wait for workers that have not come."""


def run(given: Given[DoctorFlags]) -> int:
    """Show what this machine has, what it lacks, and how to fix it.

    With --cluster: versions, names, ports, clocks, latency and bandwidth of every pair of machines, and a matrix
    product on every device. It names closed ports, and nodes, links and devices that are slow:

        torchrun --nnodes 2 … -m shoal doctor --cluster      # on every machine

    The exit code is 1 if something that every run needs is broken.
    """
    if given.flags.cluster:
        return _run_cluster(given.flags)
    from shoal.cli.doctor import checks

    found = checks.checks()
    code = _show(found, given.flags)
    if code == 0 and not given.flags.json and not given.flags.markdown:
        text.next_step("shoal", "train", "quickstart")
    return code


def _run_cluster(flags: DoctorFlags) -> int:
    """Examine the cluster; rank 0 shows the result."""
    from shoal.cli.doctor.cluster import examine
    from shoal.cli.doctor.cluster_report import as_dict, checks_of, tables_of

    cluster = examine(flags.join_timeout)
    if cluster is None:
        return 0
    if not flags.json:
        tables = tables_of(cluster)
        text.show(f"```\n{tables}\n```\n" if flags.markdown else f"{tables}\n")
    return _show(checks_of(cluster), flags, as_dict(cluster))


def _show(found: "Sequence[Check]", flags: DoctorFlags, more: "Mapping[str, Any] | None" = None) -> int:
    """Show the checks; the exit code."""
    if flags.json:
        text.show(as_json(found, more))
    elif flags.markdown:
        text.show(as_markdown(found))
    else:
        text.show(
            as_text(
                found, width=shutil.get_terminal_size((110, 24)).columns, colour=text.has_styles(sys.stdout)
            )
        )
    return 1 if worst(found) == "FAIL" else 0


COMMAND = Command("doctor", run, DoctorFlags)
