"""Findings of one run on the terminal: after training, and above the path of its report."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import text
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.compare.remark import Remark
    from shoal.training.result import Result

MOST = 3
"""Findings at the end of training; the report has all."""
MOST_EVENT_BYTES = 32 * 2**20
"""Larger event files take seconds to read: then only `shoal report` looks at them."""


def show_findings(remarks: "Sequence[Remark]") -> None:
    """Each finding as a word, the claim with its numbers, and what to try."""
    for remark in remarks:
        lines = [f"{remark.claim} {remark.numbers}", *([f"→ {remark.advice}"] if remark.advice else [])]
        indent = 2 + max(len(each.word) for each in remarks) + 2
        shown = "\n".join(
            text.wrapped(line, indent, indent + 2 * (number > 0)) for number, line in enumerate(lines)
        )
        text.show(f"  {text.bold(remark.word)}{shown[2 + len(remark.word) :]}")


def show_after_training(result: "Result") -> None:
    """What a run that just finished shows, and what to do next. A run of one worker shows nothing here."""
    folder = Path(result.run)
    if (
        result.workers > 1
        and sum(path.stat().st_size for path in folder.glob("events.*")) <= MOST_EVENT_BYTES
    ):
        from shoal.compare.comparison import compare
        from shoal.compare.one_run import findings
        from shoal.words import read_words

        with suppress(
            ShoalError
        ):  # of a run too short or damaged: `shoal report` says so, and this run has finished
            show_findings(findings(compare([folder]), read_words("en", "shoal.compare"))[:MOST])
    text.next_step("shoal", "report", folder)
