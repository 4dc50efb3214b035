"""The end of a run on the terminal: findings, also above the path of its report, or how to resume it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import text
from shoal.errors import ShoalError
from shoal.printable import printable
from shoal.report.paired import outside_interval
from shoal.report.plain_tables import width

if TYPE_CHECKING:
    from shoal.compare.remark import Remark
    from shoal.config.schema import RunConfig
    from shoal.training.result import Result
    from shoal.words import Words

BEGINNING = "Alice was beginning to "
MOST = 3
"""Findings at the end of training; the report has all."""
MOST_EVENT_BYTES = 8 * 2**20
"""Larger event files take seconds to read: then only `shoal report` looks at them."""


def show_findings(remarks: "Sequence[Remark]", words: "Words") -> None:
    """Each finding as a word, the claim with its numbers, and what to try."""
    indent = 4 + max((width(remark.word) for remark in remarks), default=0)
    for remark in remarks:
        claim = words("join.sentences", first=remark.claim, last=remark.numbers)
        text.show(f"  {text.bold(remark.word)}{text.wrapped(claim, indent)[2 + width(remark.word) :]}")
        if remark.advice:
            text.show(text.wrapped(f"→ {remark.advice}", indent, indent + 2))


def show_after_training(result: "Result") -> None:
    """What a run that just finished shows, and what to do next. A few steps have no findings."""
    folder = Path(result.run)
    event_bytes = sum(path.stat().st_size for path in folder.glob("events.*"))
    if outside_interval(result.steps) and event_bytes <= MOST_EVENT_BYTES:
        from shoal.compare.comparison import compare
        from shoal.compare.one_run import findings
        from shoal.words import read_words

        words = read_words("en", "shoal.compare")
        # Of a run that is too short or damaged `shoal report` says so, and this run has finished.
        with suppress(ShoalError):
            show_findings(findings(compare([folder]), words)[:MOST], words)
    text.next_step("shoal", "report", folder)


def show_text(config: "RunConfig", folder: Path) -> None:
    """How a trained model of text writes; a run that saved no weights shows nothing."""
    if config.data.name != "alice" and not getattr(config.data, "path", "").endswith(".txt"):
        return
    from shoal.training.continue_text import continue_text
    from shoal.training.saved import open_run

    with suppress(ShoalError):
        written = printable(continue_text(open_run(folder, trust_code=True), config, BEGINNING))
        text.show(
            text.bold("the model writes") + "\n" + "\n".join(f"  {line}" for line in written.split("\n"))
        )


def show_interrupted(config: "RunConfig", result: "Result") -> int:
    """How to resume a run that was interrupted; the exit code of the command."""
    from shoal.config.schema import named_code
    from shoal.events.folder import resume_command

    command = resume_command(result.run, bool(named_code(config)))
    text.warn(f"stopped after step {result.steps}; resume with: {command}")
    return 128 + (result.stopped_by or 0)
