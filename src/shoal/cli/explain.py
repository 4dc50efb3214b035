"""`shoal explain`: an all-reduce algorithm round by round, drawn from the code that carries it out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast, AtMost
from shoal.errors import ConfigError


@dataclass(frozen=True)
class ExplainFlags(Flags):
    """How large, and where to draw it."""

    workers: Annotated[int, AtLeast(1), AtMost(256)] = 4
    """Number of workers."""
    svg: Path | None = None
    """Draw the rounds into this file, too."""


def run(given: Given[ExplainFlags]) -> int:
    """Show an all-reduce algorithm round by round: who sends what to whom.

    Each algorithm leaves the sum of all W workers' n elements on every worker:
    """
    if not given.words:
        text.show(COMMAND.page())
        return 0

    from shoal.events.folder import write_whole
    from shoal.explain.rounds import explain
    from shoal.explain.show import as_svg, as_text

    explanation = explain(given.words[0], given.flags.workers)
    text.show(as_text(explanation))
    svg = given.flags.svg
    if svg is not None:
        try:
            write_whole(svg, as_svg(explanation))
        except OSError as error:
            raise ConfigError(f"cannot write {svg}: {error.strerror}") from None
        text.show(f"wrote {svg}")
    return 0


def _algorithms() -> list[str]:
    from shoal.comm.algorithms import ALGORITHMS

    return [
        text.rows({name: (each.__doc__ or "").strip().splitlines()[0] for name, each in ALGORITHMS.items()})
    ]


COMMAND = Command("explain", run, ExplainFlags, words="[ALGORITHM]", details=_algorithms)
