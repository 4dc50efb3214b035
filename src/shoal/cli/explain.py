"""`shoal explain`: an all-reduce algorithm round by round, from the very code that carries it out."""

from collections.abc import Sequence
from pathlib import Path

from shoal.cli import text
from shoal.cli.options import no_more, split_options
from shoal.errors import ConfigError

USAGE = "shoal explain ALGORITHM [--workers N] [--svg FILE]"
HELP = f"""Usage: {USAGE}

Runs an all-reduce algorithm on threads and shows its rounds: who sends what to whom.

  --workers N  how many (4); W in the sentences below
  --svg FILE   draw it, too

Every one of them leaves the sum of all workers' n elements with every worker:"""


def run(argv: Sequence[str]) -> int:
    """Run the algorithm on threads and show who sends what to whom."""
    options, words = split_options(argv, switches=("--help", "-h"), values=("--workers", "--svg"))

    from shoal.comm.algorithms import ALGORITHMS

    if options.has("--help", "-h") or not words:
        names = "\n".join(
            f"  {text.bold(f'{name:26}')} {(function.__doc__ or '').strip().splitlines()[0]}"
            for name, function in ALGORITHMS.items()
        )
        text.page(f"{HELP}\n\n{names}")
        return 0
    name, *rest = words
    no_more(rest, USAGE)
    workers = options.value("--workers") or "4"
    if not workers.isdigit():
        raise ConfigError(f"--workers must be a whole number, not '{workers}'")

    from shoal.explain.rounds import explain
    from shoal.explain.show import as_svg, as_text

    explanation = explain(name, int(workers))
    text.show(as_text(explanation))
    target = options.value("--svg")
    if target is not None:
        _write(Path(target), as_svg(explanation))
        text.show(f"drawn in {target}")
    return 0


def _write(path: Path, content: str) -> None:
    from shoal.events.folder import write_whole

    try:
        write_whole(path, content)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
