"""`shoal explain`: an all-reduce algorithm round by round, drawn from the code that carries it out."""

from pathlib import Path

from shoal.cli import text
from shoal.cli.command import Block, Command, Given, show_help
from shoal.config.flags import Flag
from shoal.config.sections.values import Count
from shoal.errors import ConfigError


def run(given: Given) -> int:
    """Run the algorithm on threads and show who sends what to whom; without a name, list the algorithms."""
    if not given.words:
        show_help(given.command)
        return 0

    from shoal.comm.explain import as_svg, as_text, explain

    explanation = explain(given.words[0], given["--workers"])
    text.show(as_text(explanation))
    if given["--svg"] is not None:
        _write(Path(given["--svg"]), as_svg(explanation))
        text.show(f"wrote {given['--svg']}")
    return 0


def _write(path: Path, content: str) -> None:
    from shoal.events.folder import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _details() -> list[Block]:
    from shoal.comm.algorithms import ALGORITHMS

    return [
        "Each algorithm leaves the sum of all W workers' n elements on every worker:",
        {name: (function.__doc__ or "").strip().splitlines()[0] for name, function in ALGORITHMS.items()},
    ]


COMMAND = Command(
    "explain",
    "Show an all-reduce algorithm round by round: who sends what to whom.",
    run,
    words="[ALGORITHM]",
    flags=(
        Flag("--workers", "Number of workers.", Count, 4),
        Flag("--svg", "Draw the rounds into this file, too.", value="FILE"),
    ),
    details=_details,
)
