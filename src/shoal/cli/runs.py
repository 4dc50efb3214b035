"""`shoal runs`: a table of all runs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.config.kinds import Several


@dataclass(frozen=True)
class RunsFlags(Flags):
    """Which runs, and in which order."""

    where: Annotated[tuple[str, ...], Several()] = ()
    """Only runs that satisfy this: strategy=ddp, "accuracy>0.9", optimizer.lr=0.01; repeatable."""
    sort: str = ""
    """Order by a column, a setting or a result, such as accuracy or top5; default: by time."""
    json: bool = False
    """Print one line of JSON for each run, with all settings and results."""


def run(given: Given[RunsFlags]) -> int:
    """Show a table of all runs in FOLDER (default runs/), the latest last.

    Conditions and orders use the columns, every setting (optimizer.lr) and every result (bytes_sent).
    """
    from shoal.api.runs import selected
    from shoal.report.plain_tables import aligned
    from shoal.report.run_table import COLUMNS, metrics_of, row_of

    flags = given.flags
    runs, damaged = selected(Path(given.words[0] if given.words else "runs"), flags.where, flags.sort)
    for sentence in damaged:
        text.warn(f"warning: {sentence}")
    if flags.json:
        for each in runs:
            text.show(json.dumps({"path": str(each.path), **each.values}, default=str))
    elif runs:
        metrics = metrics_of(runs)
        right = frozenset({6, 8, 9, 10, 11, *range(12, 12 + len(metrics))})
        rows = [row_of(each, metrics) for each in runs]
        text.show(aligned(["began", *COLUMNS, *metrics], rows, right=right))
        finished = [each for each in runs if each.values["status"] == "completed"]
        if finished:
            text.next_step("shoal", "report", max(finished, key=lambda each: each.began).path)
    else:
        text.show("no runs" + (" that satisfy these conditions" if flags.where else ""))
    return 0


COMMAND = Command("runs", run, RunsFlags, words="[FOLDER]")
